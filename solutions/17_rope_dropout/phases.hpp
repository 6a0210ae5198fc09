// Chapter 17: the phases of the kernel that are not in chapter 15's phases.hpp, or differ: how a tile is copied, the
// causal mask as in chapter 8, and the dropout of P. Element is half or __nv_bfloat16.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3.
#pragma once

#include <cstdint>

#include "15_which_pairs/phases.hpp"
#include "dropout.hpp"
#include "rope.hpp"

namespace ch17 {
namespace {

using namespace ch15;  // phases.hpp

/// Starts to copy rows x d elements from device memory into a tile and fills the rest of the tile with zeros. The
/// caller is thread `thread` of the `threads` threads that copy the tile together. It copies both chunks of a pair.
template <int threads, class Element, int tile_rows, int d>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][d], const Element* __restrict__ source, int rows,
                                          int thread) {
  const ThreadChunks<d> chunks(thread);
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / chunks.threads_per_row) {
    const int row = chunks.first_row + i;
#pragma unroll
    for (int chunk = chunks.chunk; chunk < d / 8; chunk += chunks.partner_offset)
      cp_async_16(swizzled(tile, row, chunk), source + row * d + 8 * chunk, row < rows ? 16 : 0);
  }
}

/// S·scale, and -inf for masked pairs. This warp's first row attends to the first `visible` keys of the tile, each
/// later row to one more if causal, and no row to more than `keys`.
template <int Bc>
__device__ __forceinline__ void scale_and_mask(Scores<Bc> (&S)[row_tiles], float scale, int keys, int visible) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = position_in_part(lane, e);
      const int end = min(keys, visible + 16 * i + row);
#pragma unroll
      for (int j = 0; j < Bc / 8; ++j) S[i][j][e] = 8 * j + column < end ? S[i][j][e] * scale : -INFINITY;
    }
}

/// S of K/V tile `tile` becomes the exponents of P; O and l are rescaled to the new m. `keys` and `visible` as in
/// scale_and_mask. If every row attends to all keys of the tile, subtract_maximum scales S. It needs a scale > 0; for
/// other scales scale_and_mask scales S too.
template <class Element, int d, int Bc>
__device__ __forceinline__ void move_to_maximum(Registers<Element, d>& registers, Scores<Bc> (&S)[row_tiles],
                                                float scale, int keys, int visible, int tile) {
  const bool masked = min(keys, visible) < Bc, scaled = masked || scale <= 0;
  if (masked) workbook::cuda::note("masked tile", tile);
  if (scaled) scale_and_mask<Bc>(S, scale, keys, visible);
  float rescale[row_tiles][2];
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
    subtract_maximum(S[i], registers.m[i], registers.l[i], rescale[i], scaled ? 1 : scale);
  rescale_O(registers, rescale, tile);
}

/// The exponents of 16 keys of a row tile become P, dropped elements 0; this lane's share of P's sum is added to l.
/// `left` and `right` are parts j and j + 1 of row tile i in the block of kept_pairs.
__device__ __forceinline__ void exponentiate(Fragment<float, 4>& left, Fragment<float, 4>& right, float (&l)[2],
                                             std::uint32_t kept, int i, int j) {
  // TODO(17.3) For each e: compute both exponentials, add both to l of row e / 2, then set those to 0 that is_kept
  // reports as dropped (about 6 lines).
  // BEGIN 17.3
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    left[e] = exp2_ftz(left[e]), right[e] = exp2_ftz(right[e]);
    l[e / 2] += left[e] + right[e];  // the sum includes dropped elements
    if (!is_kept(kept, i, j, e)) left[e] = 0;
    if (!is_kept(kept, i, j + 1, e)) right[e] = 0;
  }
  // END 17.3
}

/// O += P V for this warp's rows, with dropout applied to P: exponents of P (32, Bc), V (Bc, d) -> (32, d). first_query
/// and first_key are the indices of the warp's first row and of the tile's first key.
template <bool drops, class Element, int d, int Bc>
__device__ __forceinline__ void accumulate_PV(Registers<Element, d>& registers, Scores<Bc> (&S)[row_tiles],
                                              Element (&V)[Bc][d], const Dropout& dropout, int head, int first_query,
                                              int first_key) {
  std::uint32_t kept = all_kept;
#pragma unroll
  for (int j = 0; j < Bc / 16; ++j) {
    if (drops && j % 2 == 0) kept = kept_pairs<false>(dropout, head, first_query, first_key + 16 * j);
    Fragment<Element, 4> P[row_tiles];
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
      exponentiate(S[i][2 * j], S[i][2 * j + 1], registers.l[i], kept, i, j % 2 * 2);
      P[i] = as_A<Element>(S[i][2 * j], S[i][2 * j + 1]);
    }
#pragma unroll
    for (int c = 0; c < d / 16; ++c) {
      Fragment<Element, 4> V_part;  // 16 keys, 16 columns: a row of V is a row of B
      load_B_by_rows(V_part, V, 16 * j, 16 * c);
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        mma_m16n8k16(registers.O[i][2 * c], P[i], V_part[0], V_part[1]);
        mma_m16n8k16(registers.O[i][2 * c + 1], P[i], V_part[2], V_part[3]);
      }
    }
  }
}

}  // namespace
}  // namespace ch17
