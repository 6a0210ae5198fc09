// Chapter 16: the scores of a tile, forward and backward. In a partial tile each pair is asked.
//
// Source: Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 16.7
#pragma once

#include "pairs.hpp"
#include "phases.hpp"

namespace ch16 {
namespace {

/// Products Q_i·K_j of a partial tile, (32, Bc), which begins at first_query and first_key, become scores in units of
/// log2: scaled, or -inf where the pair does not count.
template <int Bc, class Predicate>
__device__ __forceinline__ void ask_each_pair(Scores<Bc> (&S)[row_tiles], float scale, const Pairs<Predicate>& pairs,
                                              int first_query, int first_key) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = place_in_D(lane, e);
      const int query = first_query + 16 * i + row, key = first_key + column;  // of part 0
      // TODO(16.7) Each part j: the score of this query with key + 8·j (about 3 lines).
      // BEGIN 16.7
      WORKBOOK_TODO(16.7);
      // END 16.7
    }
}

/// S of a tile becomes the exponents of P; O and l are brought to the new m. Scores of a full tile are scaled with the
/// maximum, as in chapter 8, if the scale is > 0.
template <class Element, int d, int Bc, class Predicate>
__device__ __forceinline__ void move_to_maximum(Registers<Element, d>& own, Scores<Bc> (&S)[row_tiles], float scale,
                                                const Pairs<Predicate>& pairs, bool partial, int first_query,
                                                int tile) {
  if (partial) {
    workbook::cuda::note("masked tile", tile);
    ask_each_pair<Bc>(S, scale, pairs, first_query, tile * Bc);
  } else if (scale <= 0) {
#pragma unroll
    for (Scores<Bc>& row_tile : S)
#pragma unroll
      for (Fragment<float, 4>& part : row_tile)
#pragma unroll
        for (int e = 0; e < 4; ++e) part[e] *= scale;
  }
  float rescale[row_tiles][2];
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
    subtract_maximum(S[i], own.m[i], own.l[i], rescale[i], partial || scale <= 0 ? 1 : scale);
  rescale_O(own, rescale, tile);
}

/// What a lane holds of a result (16, 8), four floats; and of 32 rows and 8·parts columns: two row tiles of 16.
using Part = Fragment<float, 4>;
template <int parts>
using Result = Part[2][parts];

/// Backward: K Qᵀ -> Pᵀ = exp2(scale·Q_i·K_j - LSE) and dPᵀ -> dSᵀ = P∘(dP - D), (32, 8·parts), all in fp32. The keys
/// begin at first_key, the queries at first_query. rows: what the queries bring, LSE·log2(e) in x and D in y. In a
/// partial block P and dS of pairs that do not count become 0.
template <bool partial, int parts, class Predicate>
__device__ __forceinline__ void form_P_and_dS(Result<parts>& S, Result<parts>& dP, const float2* rows, float scale_log2,
                                              const Pairs<Predicate>& pairs, int first_key, int first_query) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < parts; ++j) {
    const float4 two = reinterpret_cast<const float4*>(rows)[4 * j + lane % 4];  // LSE, D, and those of the next query
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto [row, column] = place_in_D(lane, e);
        const int key = first_key + 16 * i + row, query = first_query + 8 * j + column;
        const float LSE = e % 2 == 0 ? two.x : two.z, D = e % 2 == 0 ? two.y : two.w;
        // TODO(16.8) P of this pair in place of S[i][j][e], and dS in place of dP[i][j][e] (about 3 lines).
        // BEGIN 16.8
        WORKBOOK_TODO(16.8);
        // END 16.8
      }
  }
}

}  // namespace
}  // namespace ch16
