// Chapter 17: what a block keeps in shared memory, a warp in registers, and the phases of the kernel. They are chapter
// 8's, but for how a tile is copied and for P, which is dropped. Element is half or __nv_bfloat16.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3.
#pragma once

#include <cstdint>

#include "dropout.hpp"
#include "fragments.hpp"
#include "rope.hpp"
#include "rope_dropout.hpp"

namespace ch17 {
namespace {

using workbook::cuda::cp_async_16, workbook::cuda::cp_async_commit_group, workbook::cuda::cp_async_wait_group;
using workbook::cuda::cvt_rn_x2, workbook::cuda::exp2_ftz, workbook::cuda::mma_m16n8k16, workbook::cuda::stmatrix_x4;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;

// A warp has 32 rows of Q, two row tiles of 16: each part of K and V that it loads is used twice.
constexpr int row_tiles = 2;
// With d = 128 the registers have no room for Q beside O: it is loaded again for each tile of keys.
template <int d>
constexpr bool Q_in_registers = d <= 64;

/// What a block keeps in shared memory: two stages of K and V, and a Q for each warp. Rows are swizzled.
template <class Element, int d, int Bc, int warps>
struct Shared {
  Element Q[warps][32][d], K[2][Bc][d], V[2][Bc][d];
  SHARED_LAYOUT(Shared, Q, K, V);
};

/// What a warp keeps in registers: parts of Q (16, 16), parts of O (16, 8); and of each row m and l. A lane holds two
/// rows of each row tile i: r = 0 is row lane / 4, r = 1 the row 8 below. m is the same in the four lanes of a quad; l
/// is the sum over the columns of this lane alone.
template <class Element, int d>
struct Registers {
  Fragment<Element, 4> Q[row_tiles][Q_in_registers<d> ? d / 16 : 1];
  Fragment<float, 4> O[row_tiles][d / 8];
  float m[row_tiles][2], l[row_tiles][2];
};

/// S, then the exponents of P, then P of a row tile: (16, Bc) as Bc / 8 parts (16, 8). Elements 2r and 2r + 1 of a part
/// are in row r of a lane.
template <int Bc>
using Scores = Fragment<float, 4>[Bc / 8];

/// The state before the first key: O = 0, m = -inf, l = 0.
template <class Element, int d>
__device__ __forceinline__ void clear(Registers<Element, d>& own) {
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (Fragment<float, 4>& part : own.O[i]) part.fill(0);
#pragma unroll
    for (int r = 0; r < 2; ++r) own.m[i][r] = -INFINITY, own.l[i][r] = 0;
  }
}

/// Starts to copy rows x d elements from device memory into a tile; the rest of the tile becomes zeros. The caller is
/// number `thread` of `threads` that do it together, and copies both chunks of a pair.
template <int threads, class Element, int tile_rows, int d>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][d], const Element* __restrict__ source, int rows,
                                          int thread) {
  const OwnChunks<d> own(thread);
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / own.threads_of_row) {
    const int row = own.first_row + i;
#pragma unroll
    for (int chunk = own.chunk; chunk < d / 8; chunk += own.apart)
      cp_async_16(swizzled(tile, row, chunk), source + row * d + 8 * chunk, row < rows ? 16 : 0);
  }
}

/// S = Q Kᵀ of this warp's rows, unscaled: (32, d), (Bc, d) -> (32, Bc).
template <class Element, int d, int Bc>
__device__ __forceinline__ void multiply_QK(Scores<Bc> (&S)[row_tiles], Registers<Element, d>& own, Element (&Q)[32][d],
                                            Element (&K)[Bc][d]) {
#pragma unroll
  for (Scores<Bc>& row_tile : S)
#pragma unroll
    for (Fragment<float, 4>& part : row_tile) part.fill(0);
#pragma unroll
  for (int c = 0; c < d / 16; ++c) {
    const int q = Q_in_registers<d> ? c : 0;
    if (!Q_in_registers<d>) load_A(own.Q[0][q], Q, 0, 16 * c), load_A(own.Q[1][q], Q, 16, 16 * c);
#pragma unroll
    for (int j = 0; j < Bc / 16; ++j) {
      Fragment<Element, 4> K_part;  // 16 keys: a row of K is a column of Kᵀ
      load_B_by_columns(K_part, K, 16 * j, 16 * c);
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        mma_m16n8k16(S[i][2 * j], own.Q[i][q], K_part[0], K_part[1]);
        mma_m16n8k16(S[i][2 * j + 1], own.Q[i][q], K_part[2], K_part[3]);
      }
    }
  }
}

/// S·scale, and -inf for keys that a row does not see. This warp's first row sees the first `visible` keys of the tile,
/// each later row one more if causal, and none sees more than `keys`.
template <int Bc>
__device__ __forceinline__ void scale_and_mask(Scores<Bc> (&S)[row_tiles], float scale, int keys, int visible) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = place_in_D(lane, e);
      const int end = min(keys, visible + 16 * i + row);
#pragma unroll
      for (int j = 0; j < Bc / 8; ++j) S[i][j][e] = 8 * j + column < end ? S[i][j][e] * scale : -INFINITY;
    }
}

/// The largest of this lane's scores in its row r: over the even columns and over the odd, so that neither maximum
/// waits for the other.
template <int parts>
__device__ __forceinline__ float largest_of_lane(const Fragment<float, 4> (&S)[parts], int r) {
  float even = S[0][2 * r], odd = S[0][2 * r + 1];
#pragma unroll
  for (int j = 1; j < parts; ++j) even = fmaxf(even, S[j][2 * r]), odd = fmaxf(odd, S[j][2 * r + 1]);
  return fmaxf(even, odd);
}

/// S -> S·scale - m of a row tile, the exponents of P, with the m that the row has after this tile; scale > 0, in units
/// of log2. l is brought to the new m; rescale[r] is what brings O there. Scores may be -inf, even all of a row.
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

/// O = O·rescale, if any lane's factor differs from 1. tile: the number of the K/V tile, for the trace.
template <class Element, int d>
__device__ __forceinline__ void rescale_O(Registers<Element, d>& own, const float (&rescale)[row_tiles][2], int tile) {
  const bool moved = rescale[0][0] != 1 || rescale[0][1] != 1 || rescale[1][0] != 1 || rescale[1][1] != 1;
  if (!__any_sync(all_lanes, moved)) return;
  workbook::cuda::note("rescaled tile", tile);
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (Fragment<float, 4>& part : own.O[i])
#pragma unroll
      for (int e = 0; e < 4; ++e) part[e] *= rescale[i][e / 2];
}

/// S of tile `tile` becomes the exponents of P; O and l are brought to the new m. `keys` and `visible` as in
/// scale_and_mask: a tile of which every row sees all keys is not masked, and subtract_maximum scales it. That wants a
/// scale > 0, so that other scales take the way of the mask too.
template <class Element, int d, int Bc>
__device__ __forceinline__ void move_to_maximum(Registers<Element, d>& own, Scores<Bc> (&S)[row_tiles], float scale,
                                                int keys, int visible, int tile) {
  const bool masked = min(keys, visible) < Bc, scaled = masked || scale <= 0;
  if (masked) workbook::cuda::note("masked tile", tile);
  if (scaled) scale_and_mask<Bc>(S, scale, keys, visible);
  float rescale[row_tiles][2];
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) subtract_maximum(S[i], own.m[i], own.l[i], rescale[i], scaled ? 1 : scale);
  rescale_O(own, rescale, tile);
}

/// Two parts (16, 8), side by side and rounded to Element, are a left operand (16, 16).
template <class Element>
__device__ __forceinline__ Fragment<Element, 4> as_A(const Fragment<float, 4>& left, const Fragment<float, 4>& right) {
  Fragment<Element, 4> A;
  A[0] = cvt_rn_x2<Element>(left[0], left[1]), A[1] = cvt_rn_x2<Element>(left[2], left[3]);
  A[2] = cvt_rn_x2<Element>(right[0], right[1]), A[3] = cvt_rn_x2<Element>(right[2], right[3]);
  return A;
}

/// Exponents of 16 keys of a row tile become P; l takes this lane's part of its sum. `left` and `right` are parts j and
/// j + 1, modulo 4, of row tile i.
__device__ __forceinline__ void exponentiate(Fragment<float, 4>& left, Fragment<float, 4>& right, float (&l)[2],
                                             std::uint32_t kept, int i, int j) {
  // TODO(17.3) For each e: both exponentials; l of row e / 2; and of the two what is kept, or 0 (about 6 lines).
  // BEGIN 17.3
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    left[e] = exp2_ftz(left[e]), right[e] = exp2_ftz(right[e]);
    l[e / 2] += left[e] + right[e];  // the softmax is that of all keys
    if (!keeps(kept, i, j, e)) left[e] = 0;
    if (!keeps(kept, i, j + 1, e)) right[e] = 0;
  }
  // END 17.3
}

/// O += P V of this warp's rows, of what is kept of P: exponents of P (32, Bc), V (Bc, d) -> (32, d). The warp's first
/// query and the tile's first key have these numbers in their head.
template <bool drops, class Element, int d, int Bc>
__device__ __forceinline__ void accumulate_PV(Registers<Element, d>& own, Scores<Bc> (&S)[row_tiles],
                                              Element (&V)[Bc][d], const Dropout& dropout, int head, int first_query,
                                              int first_key) {
  std::uint32_t kept = all_kept;
#pragma unroll
  for (int j = 0; j < Bc / 16; ++j) {
    if (drops && j % 2 == 0) kept = kept_pairs<false>(dropout, head, first_query, first_key + 16 * j);
    Fragment<Element, 4> P[row_tiles];
#pragma unroll
    for (int i = 0; i < row_tiles; ++i) {
      exponentiate(S[i][2 * j], S[i][2 * j + 1], own.l[i], kept, i, j % 2 * 2);
      P[i] = as_A<Element>(S[i][2 * j], S[i][2 * j + 1]);
    }
#pragma unroll
    for (int c = 0; c < d / 16; ++c) {
      Fragment<Element, 4> V_part;  // 16 keys, 16 columns: a row of V is a row of B
      load_B_by_rows(V_part, V, 16 * j, 16 * c);
#pragma unroll
      for (int i = 0; i < row_tiles; ++i) {
        mma_m16n8k16(own.O[i][2 * c], P[i], V_part[0], V_part[1]);
        mma_m16n8k16(own.O[i][2 * c + 1], P[i], V_part[2], V_part[3]);
      }
    }
  }
}

/// O / l·kept_scale as Element and the LSE, (m + log2 l) ln 2, to device memory: the first `rows` of this warp's rows,
/// (32, d) and (32). O goes through this warp's place for Q, where nobody needs Q any more, so that a lane stores 16
/// bytes.
template <class Element, int d>
__device__ __forceinline__ void write_output(Registers<Element, d>& own, Element (&smem_O)[32][d],
                                             Element* __restrict__ O, float* __restrict__ lse, int rows,
                                             float kept_scale) {
  const int lane = threadIdx.x % 32;
  __syncwarp();  // all lanes have read Q: O may overwrite it
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float l = own.l[i][r];
      l += __shfl_xor_sync(all_lanes, l, 1);
      l += __shfl_xor_sync(all_lanes, l, 2);
      const int row = 16 * i + place_in_D(lane, 2 * r).row;
      if (lane % 4 == 0 && row < rows) lse[row] = (own.m[i][r] + log2f(l)) * ln_2;
      const float inverse = l == 0 ? 0 : kept_scale / l;
#pragma unroll
      for (Fragment<float, 4>& part : own.O[i]) part[2 * r] *= inverse, part[2 * r + 1] *= inverse;
    }
#pragma unroll
    for (int c = 0; c < d / 16; ++c)  // the places are those of load_A
      stmatrix_x4(swizzled(smem_O, 16 * i + lane % 16, 2 * c + lane / 16),
                  as_A<Element>(own.O[i][2 * c], own.O[i][2 * c + 1]));
  }
  __syncwarp();  // O is there for all lanes
  const int chunk = lane % (d / 8);
#pragma unroll
  for (int row = lane / (d / 8); row < 32; row += 32 / (d / 8))
    if (row < rows)
      reinterpret_cast<uint4*>(O)[row * (d / 8) + chunk] = *reinterpret_cast<uint4*>(swizzled(smem_O, row, chunk));
}

}  // namespace
}  // namespace ch17
