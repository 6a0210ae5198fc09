// Chapter 15, given: the shared memory of a thread block, the registers of a warp, and the phases that do not depend on
// the mask. Chapter 8 builds them. Element is half or __nv_bfloat16.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3.
#pragma once

#include <cstdint>

#include "14_grouped_queries/fragments.hpp"

namespace ch15 {
namespace {

using namespace ch14;  // fragments.hpp
using workbook::cuda::cp_async_16, workbook::cuda::cp_async_commit_group, workbook::cuda::cp_async_wait_group;
using workbook::cuda::cvt_rn_x2, workbook::cuda::exp2_ftz, workbook::cuda::mma_m16n8k16, workbook::cuda::stmatrix_x4;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;
// m may be below the row's maximum by this much, in units of log2, as in chapter 8.
constexpr float slack = 8;

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

/// The state before the first key: O = 0, and the given m and this lane's share of l.
template <class Element, int d>
__device__ __forceinline__ void clear(Registers<Element, d>& registers, float m, float l) {
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (Fragment<float, 4>& part : registers.O[i]) part.fill(0);
#pragma unroll
    for (int r = 0; r < 2; ++r) registers.m[i][r] = m, registers.l[i][r] = l;
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
#pragma unroll
  for (Scores<Bc>& row_tile : S)
#pragma unroll
    for (Fragment<float, 4>& part : row_tile) part.fill(0);
#pragma unroll
  for (int c = 0; c < d / 16; ++c) {
    const int q = Q_in_registers<d> ? c : 0;
    if (!Q_in_registers<d>) load_A(registers.Q[0][q], Q, 0, 16 * c), load_A(registers.Q[1][q], Q, 16, 16 * c);
#pragma unroll
    for (int j = 0; j < Bc / 16; ++j) {
      Fragment<Element, 4> K_part;  // 16 keys: a row of K is a column of Kᵀ
      load_B_by_columns(K_part, K, 16 * j, 16 * c);
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        mma_m16n8k16(S[i][2 * j], registers.Q[i][q], K_part[0], K_part[1]);
        mma_m16n8k16(S[i][2 * j + 1], registers.Q[i][q], K_part[2], K_part[3]);
      }
    }
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
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = largest_of_lane(S, r);
    largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, 2));
    const float m_tile = largest * scale, m_new = m_tile > m[r] + slack ? m_tile : m[r];
    const float m_safe = m_new == -INFINITY ? 0 : m_new;
    rescale[r] = exp2_ftz(m[r] - m_safe);
    m[r] = m_new;
    l[r] *= rescale[r];
#pragma unroll
    for (Fragment<float, 4>& part : S)
#pragma unroll
      for (int e = 2 * r; e < 2 * r + 2; ++e) part[e] = part[e] * scale - m_safe;
  }
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

/// Two adjacent parts (16, 8), rounded to Element, are an operand A (16, 16).
template <class Element>
__device__ __forceinline__ Fragment<Element, 4> as_A(const Fragment<float, 4>& left, const Fragment<float, 4>& right) {
  Fragment<Element, 4> A;
  A[0] = cvt_rn_x2<Element>(left[0], left[1]), A[1] = cvt_rn_x2<Element>(left[2], left[3]);
  A[2] = cvt_rn_x2<Element>(right[0], right[1]), A[3] = cvt_rn_x2<Element>(right[2], right[3]);
  return A;
}

/// O += P V for this warp's rows: exponents of P (32, Bc), V (Bc, d) -> (32, d). Adds this lane's share of P's row sums
/// to l.
template <class Element, int d, int Bc>
__device__ __forceinline__ void accumulate_PV(Registers<Element, d>& registers, Scores<Bc> (&S)[row_tiles],
                                              Element (&V)[Bc][d]) {
#pragma unroll
  for (int j = 0; j < Bc / 16; ++j) {
    Fragment<Element, 4> P[row_tiles];
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
      Fragment<float, 4>&left = S[i][2 * j], &right = S[i][2 * j + 1];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        left[e] = exp2_ftz(left[e]), right[e] = exp2_ftz(right[e]);
        registers.l[i][e / 2] += left[e] + right[e];
      }
      P[i] = as_A<Element>(left, right);
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

/// Writes O·factor / l as Element, (32, d), and the LSE, (m + log2 l) ln 2, (32), to device memory: the first `rows` of
/// this warp's rows. O goes through this warp's Q tile, which is no longer needed, so that a lane stores 16 bytes at a
/// time.
template <class Element, int d>
__device__ __forceinline__ void write_output(Registers<Element, d>& registers, Element (&smem_O)[32][d],
                                             Element* __restrict__ O, float* __restrict__ lse, int rows,
                                             float factor = 1) {
  const int lane = threadIdx.x % 32;
  __syncwarp();  // all lanes have read Q: O may overwrite it
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float l = registers.l[i][r];
      l += __shfl_xor_sync(all_lanes, l, 1);
      l += __shfl_xor_sync(all_lanes, l, 2);
      const int row = 16 * i + position_in_part(lane, 2 * r).row;
      if (lane % 4 == 0 && row < rows) lse[row] = (registers.m[i][r] + log2f(l)) * ln_2;
      const float inverse = l == 0 ? 0 : factor / l;
#pragma unroll
      for (Fragment<float, 4>& part : registers.O[i]) part[2 * r] *= inverse, part[2 * r + 1] *= inverse;
    }
#pragma unroll
    for (int c = 0; c < d / 16; ++c)  // the chunk addresses of load_A
      stmatrix_x4(swizzled(smem_O, 16 * i + lane % 16, 2 * c + lane / 16),
                  as_A<Element>(registers.O[i][2 * c], registers.O[i][2 * c + 1]));
  }
  __syncwarp();  // O is visible to all lanes
  const int chunk = lane % (d / 8);
#pragma unroll
  for (int row = lane / (d / 8); row < 32; row += 32 / (d / 8))
    if (row < rows)
      reinterpret_cast<uint4*>(O)[row * (d / 8) + chunk] = *reinterpret_cast<uint4*>(swizzled(smem_O, row, chunk));
}

}  // namespace
}  // namespace ch15
