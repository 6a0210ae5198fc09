// Chapter 8, registers: the shared memory of a thread block, the registers of a warp, and the phases of the kernel.
// Element is half or __nv_bfloat16.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3.
#pragma once

#include <cstdint>

#include "fragments.hpp"
#include "registers.hpp"

namespace ch08 {
namespace {

using workbook::cuda::cp_async_16, workbook::cuda::cp_async_commit_group, workbook::cuda::cp_async_wait_group;
using workbook::cuda::cvt_rn_x2, workbook::cuda::exp2_ftz, workbook::cuda::mma_m16n8k16, workbook::cuda::stmatrix_x4;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;

// A warp has 32 rows of Q, two row tiles of 16, so it uses each fragment of K and V that it loads twice.
constexpr int row_tiles = 2;
// With d = 128, Q and O do not both fit in registers, so Q is loaded again for each K/V tile.
template <int d>
constexpr bool Q_in_registers = d <= 64;

/// The shared memory of a thread block: two stages of K and V, and a Q tile per warp. Rows are swizzled.
template <class Element, int d, int Bc, int warps>
struct Shared {
  Element Q[warps][32][d], K[2][Bc][d], V[2][Bc][d];
  SHARED_LAYOUT(Shared, Q, K, V);
};

/// The registers of a warp: operands of Q (16, 16), parts of O (16, 8), and m and l of each row. A lane holds two rows
/// of each row tile i: r = 0 is row lane / 4, r = 1 is the row 8 below. m is equal in the four lanes of a quad; l is
/// the sum over this lane's columns only.
template <class Element, int d>
struct Registers {
  Fragment<Element, 4> Q[row_tiles][Q_in_registers<d> ? d / 16 : 1];
  Fragment<float, 4> O[row_tiles][d / 8];
  float m[row_tiles][2], l[row_tiles][2];
};

/// S of a row tile, then the exponents of P, then P: (16, Bc) as Bc / 8 parts (16, 8). Elements 2r and 2r + 1 of a part
/// are in row r of the lane.
template <int Bc>
using Scores = Fragment<float, 4>[Bc / 8];

/// The state before the first key: O = 0, m = -inf, l = 0.
template <class Element, int d>
__device__ __forceinline__ void clear(Registers<Element, d>& registers) {
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (Fragment<float, 4>& part : registers.O[i]) part.fill(0);
#pragma unroll
    for (int r = 0; r < 2; ++r) registers.m[i][r] = -INFINITY, registers.l[i][r] = 0;
  }
}

/// Starts to copy rows x d elements from device memory into a tile and fills the rest of the tile with zeros. The
/// caller is thread `thread` of the `threads` threads that copy the tile together.
template <int threads, class Element, int tile_rows, int d>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][d], const Element* __restrict__ source, int rows,
                                          int thread) {
  const int first_row = thread / (d / 8), chunk = thread % (d / 8);
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / (d / 8)) {
    const int row = first_row + i;
    cp_async_16(swizzled(tile, row, chunk), source + row * d + 8 * chunk, row < rows ? 16 : 0);
  }
}

/// S = Q Kᵀ for this warp's rows, unscaled: (32, d), (Bc, d) -> (32, Bc).
template <class Element, int d, int Bc>
__device__ __forceinline__ void multiply_QK(Scores<Bc> (&S)[row_tiles], Registers<Element, d>& registers,
                                            Element (&Q)[32][d], Element (&K)[Bc][d]) {
  // TODO(8.3) Clear S. For each 16 columns of Q and K: if Q is not in registers, load it into registers.Q[i][0]; then
  // load each 16 keys once, and multiply them with both row tiles (about 14 lines).
  // BEGIN 8.3
  WORKBOOK_TODO(8.3);
  // END 8.3
}

/// S -> S·scale, and -inf for masked keys. This warp's first row sees the first `visible` keys of the tile, each later
/// row one key more if causal, and no row sees more than `keys`.
template <int Bc>
__device__ __forceinline__ void scale_and_mask(Scores<Bc> (&S)[row_tiles], float scale, int keys, int visible) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = position_in_D(lane, e);
      const int end = min(keys, visible + 16 * i + row);
#pragma unroll
      for (int j = 0; j < Bc / 8; ++j) S[i][j][e] = 8 * j + column < end ? S[i][j][e] * scale : -INFINITY;
    }
}

/// The maximum of this lane's scores in its row r. Even and odd columns have separate maxima, so that the two chains of
/// fmaxf are independent.
template <int parts>
__device__ __forceinline__ float largest_of_lane(const Fragment<float, 4> (&S)[parts], int r) {
  float even = S[0][2 * r], odd = S[0][2 * r + 1];
#pragma unroll
  for (int j = 1; j < parts; ++j) even = fmaxf(even, S[j][2 * r]), odd = fmaxf(odd, S[j][2 * r + 1]);
  return fmaxf(even, odd);
}

/// S -> S·scale - m of a row tile: the exponents of P, where m is the row's maximum after this tile. scale > 0, in
/// units of log2. Rescales l to the new m; rescale[r] is the factor for O. Any scores may be -inf, even all of a row.
template <int parts>
__device__ __forceinline__ void subtract_maximum(Fragment<float, 4> (&S)[parts], float (&m)[2], float (&l)[2],
                                                 float (&rescale)[2], float scale) {
  // TODO(8.4) For both rows of this lane: compute the maximum over the quad by two shuffles. Update m only if the
  // maximum exceeds it by more than slack. Compute the factor, rescale l, and replace S (about 13 lines).
  // BEGIN 8.4
  WORKBOOK_TODO(8.4);
  // END 8.4
}

/// O = O·rescale, if any lane's factor differs from 1. tile: the index of the K/V tile, for the trace.
template <class Element, int d>
__device__ __forceinline__ void rescale_O(Registers<Element, d>& registers, const float (&rescale)[row_tiles][2],
                                          int tile) {
  const bool moved = rescale[0][0] != 1 || rescale[0][1] != 1 || rescale[1][0] != 1 || rescale[1][1] != 1;
  if (!__any_sync(all_lanes, moved)) return;
  workbook::cuda::note("rescaled tile", tile);
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (Fragment<float, 4>& part : registers.O[i])
#pragma unroll
      for (int e = 0; e < 4; ++e) part[e] *= rescale[i][e / 2];
}

/// Replaces S of tile `tile` by the exponents of P, and rescales O and l to the new m. `keys` and `visible` are those
/// of scale_and_mask. An unmasked tile is scaled by subtract_maximum, which requires scale > 0; for any other scale,
/// and for a masked tile, scale_and_mask does it.
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

// as_A: two adjacent parts (16, 8), rounded to Element, are an operand A (16, 16).
// accumulate_PV: O += P V for this warp's rows, exponents of P (32, Bc), V (Bc, d) -> (32, d). Adds this lane's share
// of P's row sums to l. The exponentials of 16 keys are computed right before the MMAs of these keys, while the tensor
// cores process the previous 16 keys.
//
// TODO(8.5) as_A: the four registers of A. accumulate_PV: for each 16 keys, compute P of both row tiles, add it to l
// and round it to A; then load each 16 columns of V once, and multiply them with both row tiles (about 21 lines).
// BEGIN 8.5
template <class Element>
__device__ __forceinline__ Fragment<Element, 4> as_A(const Fragment<float, 4>& left,
                                                     const Fragment<float, 4>& right) {
  WORKBOOK_TODO(8.5);
}
template <class Element, int d, int Bc>
__device__ __forceinline__ void accumulate_PV(Registers<Element, d>& registers, Scores<Bc> (&S)[row_tiles],
                                              Element (&V)[Bc][d]) {
  WORKBOOK_TODO(8.5);
}
// END 8.5

/// Writes O / l, rounded, and the LSE, (m + log2 l) ln 2, of the first `rows` of this warp's 32 rows to device memory:
/// (32, d) and (32). O goes through this warp's Q tile, which is no longer needed, so that each lane stores 16 bytes.
template <class Element, int d>
__device__ __forceinline__ void write_output(Registers<Element, d>& registers, Element (&smem_O)[32][d],
                                             Element* __restrict__ O, float* __restrict__ lse, int rows) {
  const int lane = threadIdx.x % 32;
  // TODO(8.6) For both rows of each row tile: sum l over the quad, write the LSE by one lane of the quad, divide O by
  // l. Store O to smem_O by stmatrix_x4, 16 columns at a time; then copy it to O, 16 bytes per lane (about 23 lines).
  // BEGIN 8.6
  WORKBOOK_TODO(8.6);
  // END 8.6
}

}  // namespace
}  // namespace ch08
