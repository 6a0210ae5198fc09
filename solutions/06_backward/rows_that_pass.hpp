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
struct Streamed {
  std::int64_t begin, end, all_from, all_until;
};

/// The queries that pass by `count` keys from `first` on, or the keys that pass by `count` queries. Query i sees key j
/// if j <= i + (Nk - Nq), or always where causal is false. Queries that do not exist need no mask, keys do.
template <int tile>
__device__ __forceinline__ Streamed streamed_rows(bool owns_keys, std::int64_t first, int count, std::int64_t Nq,
                                                  std::int64_t Nk, bool causal) {
  // TODO(6.6) Queries pass from the tile of the first that sees the first key; from the first that sees the last
  // key on, no mask is needed. Keys pass until the last that the last query sees; up to the last that the first
  // query sees, no mask is needed (about 9 lines).
  // BEGIN 6.6
  const std::int64_t offset = Nk - Nq;
  if (owns_keys) {
    const std::int64_t sees_first_key = causal ? max(std::int64_t(0), first - offset) : 0;
    const std::int64_t sees_last_key = causal ? first + count - 1 - offset : 0;
    return {sees_first_key / tile * tile, Nq, sees_last_key, Nq + tile};
  }
  const std::int64_t seen_by_last_query = causal ? max(std::int64_t(0), first + count + offset) : Nk;
  const std::int64_t seen_by_first_query = causal ? first + 1 + offset : Nk;
  return {0, seen_by_last_query, 0, seen_by_first_query};
  // END 6.6
}

}  // namespace
}  // namespace ch06
