// Chapter 18, masks on Hopper: chapter 15's masks and score modifications in chapter 11's kernel. O and the LSE in one
// launch. For Hopper only (sm_90a).
//
// What changes: chapter 11's kernel has one mask, causal, and a thread block's K/V tiles start at tile 0.
// - With a window, the K/V tiles of a Q tile have two ends, and may be none. A consumer needs fewer than its block, and
//   skips the others at both ends.
// - The mask is applied in the accumulator of wgmma, whose layout is not chapter 15's.
// - A TMA box is as long as a tile, but packed sequences are not. A tensor map with two dimensions along the rows makes
//   every box end with its sequence.
// - The tile scheduler has more to compute per Q tile, so the producer thread computes it for the whole block.
// What it costs: in partial tiles each pair is tested. Full tiles cost as much as in chapter 11.
//
// Source: Shah et al. 2024 (FlashAttention-3), sections 3.1 and 3.2; Dong et al. 2024 (FlexAttention).
// Test it: ./workbook test 18
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch18 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The number of tiles of `size` rows in a head with `rows` rows. Each packed sequence has tiles of its own.
inline std::int64_t tiles_per_head(const workbook::Mask& mask, std::int64_t rows, int size) {
  if (mask.lengths.empty()) return (rows + size - 1) / size;
  std::int64_t tiles = 0;
  for (const std::int64_t length : mask.lengths) tiles += (length + size - 1) / size;
  return tiles;
}

/// The tile sizes and warps per block for which kernels are built. Four warps are the producer warpgroup; every
/// further four, a consumer, have 64 rows of Q. The first entry is for d = 64, the second for d = 128. The last one,
/// for both, is for short sequences.
inline constexpr Tiles built[] = {{192, 128, 16}, {128, 128, 12}, {128, 64, 12}};
constexpr bool is_built(int d, const Tiles& tiles) {
  return tiles == built[2] ? d == 64 || d == 128 : tiles == built[d == 64 ? 0 : 1] && (d == 64 || d == 128);
}

// By how much m may be less than the row maximum, in units of log2: P is at most 2^8.
inline constexpr float slack = 8;

/// O = softmax(score_mod(scale·QKᵀ)) V over the unmasked pairs, and the LSE, for every head, in one kernel. Head h of Q
/// reads head h / (H / Hkv) of K and V. d is 64 or 128. A fully masked row gives O = 0, and the sink as its LSE, or
/// -inf without a sink. Element is half or __nv_bfloat16. Launches at most max_blocks blocks. The tile scheduler uses
/// `tile_counter`, an int that must be 0. Throws std::invalid_argument for sizes that are not built.
template <class Element>
void which_pairs(const ForwardCall<Element>& call, const Tiles& tiles, int* tile_counter, int max_blocks);

/// Bytes of shared memory per block; 0 if no kernel has these tiles.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch18
