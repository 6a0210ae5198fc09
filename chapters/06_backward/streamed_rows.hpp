// Chapter 6, causal skipping in both kernels: the tiles that a thread block streams, and those that need no mask.
//
// Source: Dao 2023, section 3.1 ("Causal masking"), of the forward pass.
// Test it: ./workbook test 6.6
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch06 {
namespace {

/// The rows that a thread block streams, [begin, end), in tiles that start at `begin`. Tiles within
/// [unmasked_begin, unmasked_end) need no mask: all their pairs are unmasked.
struct Streamed {
  std::int64_t begin, end, unmasked_begin, unmasked_end;
};

/// The rows to stream past the resident tile, which has `count` existing rows from `first` on. If keys_resident, these
/// are queries: those that attend to at least one of the resident keys. Otherwise they are keys: those that at least
/// one of the resident queries attends to. Query i attends to key j if j <= i + (Nk - Nq), or always if causal is
/// false. Keys past the end need a mask. Queries past the end need none, because their LSE is +inf.
template <int tile>
__device__ __forceinline__ Streamed streamed_rows(bool keys_resident, std::int64_t first, int count, std::int64_t Nq,
                                                  std::int64_t Nk, bool causal) {
  // TODO(6.6) Keys resident: which query is the first to attend to the first key, which to the last key? Queries
  // resident: how many keys does the last query attend to, how many the first? (about 9 lines)
  // BEGIN 6.6
  WORKBOOK_TODO(6.6);
  // END 6.6
}

}  // namespace
}  // namespace ch06
