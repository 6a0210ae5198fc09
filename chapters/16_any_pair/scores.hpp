// Chapter 16: the scores of a tile, forward and backward. In a partial block the predicate is evaluated for each pair.
//
// Source: Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 16.7
#pragma once

#include "15_which_pairs/gradient_tiles.hpp"
#include "pairs.hpp"

namespace ch16 {
namespace {

using namespace ch15;  // phases.hpp, gradient_tiles.hpp

/// Replaces the dot products Q_i·K_j of a partial block, (32, Bc), by scores in units of log2. The block starts at
/// first_query and first_key. The scores of masked pairs become -inf.
template <int Bc, class MaskMod>
__device__ __forceinline__ void apply_mask(Scores<Bc> (&S)[row_tiles], float scale, const PairMask<MaskMod>& mask,
                                           int first_query, int first_key) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = position_in_part(lane, e);
      const int query = first_query + 16 * i + row, key = first_key + column;  // in part 0
      // TODO(16.7) For each part j, whose key is key + 8·j: multiply S[i][j][e] by `scale`, or replace it by -inf if
      // the pair is masked (about 3 lines).
      // BEGIN 16.7
      WORKBOOK_TODO(16.7);
      // END 16.7
    }
}

/// S of a tile becomes the exponents of P; O and l are rescaled to the new m. If the block is full and the scale is >
/// 0, subtract_maximum scales the scores, as in chapter 8.
template <class Element, int d, int Bc, class MaskMod>
__device__ __forceinline__ void move_to_maximum(Registers<Element, d>& registers, Scores<Bc> (&S)[row_tiles],
                                                float scale, const PairMask<MaskMod>& mask, bool partial,
                                                int first_query, int tile) {
  if (partial) {
    workbook::cuda::note("masked tile", tile);
    apply_mask<Bc>(S, scale, mask, first_query, tile * Bc);
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
    subtract_maximum(S[i], registers.m[i], registers.l[i], rescale[i], partial || scale <= 0 ? 1 : scale);
  rescale_O(registers, rescale, tile);
}

/// K Qᵀ -> Pᵀ = exp2(scale·Q_i·K_j - LSE) and dPᵀ -> dSᵀ = P∘(dP - D), (32, 8·parts), all in fp32. The keys start at
/// first_key, the queries at first_query. row_stats: LSE·log2(e) in x and D in y, per query. In a partial block P and
/// dS of masked pairs become 0.
template <bool partial, int parts, class MaskMod>
__device__ __forceinline__ void form_P_and_dS(Result<parts>& S, Result<parts>& dP, const float2* row_stats,
                                              float scale_log2, const PairMask<MaskMod>& mask, int first_key,
                                              int first_query) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < parts; ++j) {
    const float4 stats = reinterpret_cast<const float4*>(row_stats)[4 * j + lane % 4];  // LSE and D of two queries
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto [row, column] = position_in_part(lane, e);
        const int key = first_key + 16 * i + row, query = first_query + 8 * j + column;
        const float LSE = e % 2 == 0 ? stats.x : stats.z, D = e % 2 == 0 ? stats.y : stats.w;
        // TODO(16.8) Replace S[i][j][e] by P of this pair, and dP[i][j][e] by dS. Both are 0 if the block is partial
        // and the pair is masked (about 3 lines).
        // BEGIN 16.8
        WORKBOOK_TODO(16.8);
        // END 16.8
      }
  }
}

}  // namespace
}  // namespace ch16
