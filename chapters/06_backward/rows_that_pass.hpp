// Chapter 6, causal skipping seen from both sides: which rows pass by a thread block, and where no mask is needed.
//
// Source: Dao 2023, section 3.1 ("Causal masking"), of the forward pass.
// Test it: ./workbook test 6.6
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch06 {
namespace {

/// The rows that pass by a block: [begin, end), in tiles from `begin` on. A tile within [all_from, all_until) needs no
/// mask: every pair of it counts.
struct Passing {
  std::int64_t begin, end, all_from, all_until;
};

/// The queries that pass by `count` keys from `first` on, or the keys that pass by `count` queries. Query i sees key j
/// if j <= i + (Nk - Nq), or always where causal is false. Queries that do not exist need no mask, keys do.
template <int tile>
__device__ __forceinline__ Passing rows_that_pass(bool owns_keys, std::int64_t first, int count, std::int64_t Nq,
                                                  std::int64_t Nk, bool causal) {
  // TODO(6.6) Queries pass from the tile of the first that sees the first key; from the first that sees the last
  // key on, no mask is needed. Keys pass until the last that the last query sees; up to the last that the first
  // query sees, no mask is needed (about 9 lines).
  // BEGIN 6.6
  WORKBOOK_TODO(6.6);
  // END 6.6
}

}  // namespace
}  // namespace ch06
