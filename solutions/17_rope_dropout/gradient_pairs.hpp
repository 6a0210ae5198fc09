// Chapter 17, backward: P and dS of a pair of a query and a key, of which some are dropped, and pairs of elements of a
// gradient, which are rotated back.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; Srivastava et al. 2014, "Dropout"; Su et al. 2021.
// Test it: ./workbook test 17.7
#pragma once

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "phases.hpp"
#include "rope_dropout_backward.hpp"

namespace ch17 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; rope_dropout_backward_bf16.cu compiles the kernels again, with bf16

/// What a lane holds of a left operand (16, 16), or of 16 columns of a right one.
using Operand = Fragment<Element, 4>;
/// What a lane holds of a result (16, 8), four floats; and of 32 rows and 8·parts columns: two row tiles of 16.
using Part = Fragment<float, 4>;
template <int parts>
using Result = Part[2][parts];
/// A result, rounded: what the next product takes of it.
template <int parts>
using Operands = Operand[2][parts / 2];

/// How a thread block divides its work. It has a K/V tile of Bc keys, past which Q tiles of Br queries go. 32
/// keys belong to a team: one warp, or two where one warp's registers cannot hold dK and dV of 32 keys. A warp
/// accumulates `columns` columns of them, at most 64: half of these from the first half of the head, and as many from
/// the second, half a head behind, so that a lane has both elements of a pair. It forms P and dS of half of a Q tile
/// at a time, `queries` queries, which are `parts` parts of eight.
template <int d_, int Bc_, int Br_, int warps_>
struct Plan {
  static constexpr int d = d_, Bc = Bc_, Br = Br_, warps = warps_, threads = 32 * warps;
  static constexpr int team = 32 * warps / Bc, columns = d / team, queries = Br / 2, parts = queries / 8;
  static constexpr int dQ_columns = d * Br / 32 / warps;  // a warp forms 32 rows of a Q tile's dQ
  /// The first column of part (16, 8) number j of warp `number` of its team.
  static __device__ int column(int number, int j) {
    const int own = number * columns / 2 + 8 * j;
    return own + (j < columns / 16 ? 0 : d / 2 - columns / 2);
  }
};

/// Which pairs of a key and a query count, both numbered from the first of those whose P a warp forms: key k counts for
/// query q if it exists, k < keys, and if q sees it, k <= q + diagonal.
struct Mask {
  bool needed;  // false: every pair counts
  int keys, diagonal;
};

/// Where the pairs are whose P a warp forms, for kept_pairs: a head, and the first of its queries and keys.
struct Pairs {
  int head, first_query, first_key;
};

/// Sᵀ -> what is kept of Pᵀ = exp2(S·scale - LSE), and dPᵀ -> dSᵀ = P∘(dP - D), (32, 8·parts), all in fp32. scale holds
/// log2(e). rows: what the queries bring, LSE·log2(e) in x and D in y. Where a pair does not count, both are 0. dP is
/// the gradient of what is kept of P, times kept_scale, by P. What is kept of P is left without that factor: dV gets
/// it.
template <int parts>
__device__ __forceinline__ void form_P_and_dS(Result<parts>& S, Result<parts>& dP, const float2* rows, float scale,
                                              const Mask& mask, const Dropout& dropout, const Pairs& pairs) {
  const int lane = threadIdx.x % 32;
  // TODO(17.7) Draw the bits of the block in which these pairs are, if any are dropped: with eight queries a part,
  // parts may begin at its third part. Then as in exercise 9.3, with what is kept of P and of dP (about 18 lines).
  // BEGIN 17.7
  const int first_part = pairs.first_query / 8 % 4;
  std::uint32_t kept = all_kept;
  if (dropout.dropped > 0)
    kept = kept_pairs<true>(dropout, pairs.head, pairs.first_query - 8 * first_part, pairs.first_key);
#pragma unroll
  for (int j = 0; j < parts; ++j) {
    const float4 two = reinterpret_cast<const float4*>(rows)[4 * j + lane % 4];  // LSE, D, and those of the next query
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto [row, column] = place_in_D(lane, e);
        const int key = 16 * i + row, query = 8 * j + column;
        float P = exp2_ftz(S[i][j][e] * scale - (e % 2 == 0 ? two.x : two.z));
        if (mask.needed && (key >= mask.keys || key > query + mask.diagonal)) P = 0;
        const bool keep = keeps(kept, i, first_part + j, e);
        S[i][j][e] = keep ? P : 0;
        dP[i][j][e] = P * ((keep ? dP[i][j][e] * dropout.kept_scale : 0) - (e % 2 == 0 ? two.y : two.w));
      }
  }
  // END 17.7
}

// A pair (x, y) of a gradient that was formed with rotated rows is turned back: x + iy times cos - i·sin. And all pairs
// of 32 rows of dK, of which the first `rows` exist. An element of part j has its partner in part j + columns / 16, at
// the same place: see Plan::column. `table` has the rotations of the first row, (rows, d / 2).
//
// TODO(17.8) A pair. Then those of 32 rows (about 12 lines).
// STUB: __device__ __forceinline__ float2 turned_back(float x, float y, float2 by) {
// STUB:   WORKBOOK_TODO(17.8);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void rotate_back(Result<T::columns / 8>& C, const float2* __restrict__ table,
// STUB:                                             int number, int rows) {
// STUB:   WORKBOOK_TODO(17.8);
// STUB: }
// BEGIN 17.8
__device__ __forceinline__ float2 turned_back(float x, float y, float2 by) {
  return {x * by.x + y * by.y, y * by.x - x * by.y};
}
template <class T>
__device__ __forceinline__ void rotate_back(Result<T::columns / 8>& C, const float2* __restrict__ table, int number,
                                            int rows) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = place_in_D(threadIdx.x % 32, e);
      if (16 * i + row >= rows) continue;
#pragma unroll
      for (int j = 0; j < T::columns / 16; ++j) {
        float &x = C[i][j][e], &y = C[i][j + T::columns / 16][e];
        const float2 pair = turned_back(x, y, table[(16 * i + row) * (T::d / 2) + T::column(number, j) + column]);
        x = pair.x, y = pair.y;
      }
    }
}
// END 17.8

}  // namespace
}  // namespace ch17
