// Chapter 17, backward: P and dS with dropout, and the inverse rotation of gradients.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; Srivastava et al. 2014, "Dropout"; Su et al. 2021.
// Test it: ./workbook test 17.7
#pragma once

#include <cstdint>

#include "15_which_pairs/gradient_tiles.hpp"
#include "dropout.hpp"
#include "rope_dropout_backward.hpp"

namespace ch17 {
namespace {

using namespace ch15;  // gradient_tiles.hpp

/// How a thread block divides its work. It keeps one K/V tile of Bc keys and loops over Q tiles of Br queries. A team
/// has 32 keys: one warp, or two if one warp's registers cannot hold dK and dV of 32 keys. A warp accumulates `columns`
/// of their columns, at most 64: half of them from the first half of the head, the other half d / 2 columns further on,
/// so that a lane has both elements of a RoPE pair. It computes P and dS of half of a Q tile at a time: `queries`
/// queries, `parts` parts of eight.
template <int d_, int Bc_, int Br_, int warps_>
struct Plan {
  static constexpr int d = d_, Bc = Bc_, Br = Br_, warps = warps_, threads = 32 * warps;
  static constexpr int team = 32 * warps / Bc, columns = d / team, queries = Br / 2, parts = queries / 8;
  static constexpr int dQ_columns = d * Br / 32 / warps;  // a warp computes 32 rows of a Q tile's dQ
  /// The first column of part (16, 8) j of warp `team_rank` of a team. Part j + columns / 16 is d / 2 columns further
  /// on.
  static __device__ int column(int team_rank, int j) {
    const int first = team_rank * columns / 2 + 8 * j;
    return first + (j < columns / 16 ? 0 : d / 2 - columns / 2);
  }
};

/// Which (key, query) pairs are unmasked, both counted from the first key and query whose P a warp computes: key k for
/// query q if k < keys (it exists) and k <= q + diagonal.
struct Mask {
  bool needed;  // false: every pair is unmasked
  int keys, diagonal;
};

/// The indices of the pairs whose P a warp computes, for kept_pairs: the head, the first query and the first key.
struct Pairs {
  int head, first_query, first_key;
};

/// Sᵀ -> Pᵀ = exp2(S·scale - LSE), or 0 if dropped; V dOᵀ -> dSᵀ = P∘(dP - D); (32, 8·parts), in place and in fp32.
/// scale includes log2(e). row_stats: LSE·log2(e) in x and D in y, from the first query on. P and dS of a masked pair
/// are 0. dP is V dOᵀ·kept_scale, or 0 if dropped; dS uses P of all pairs. P does not include kept_scale: dV is scaled
/// by it once, at the end.
template <int parts>
__device__ __forceinline__ void form_P_and_dS(Result<parts>& S, Result<parts>& dP, const float2* row_stats, float scale,
                                              const Mask& mask, const Dropout& dropout, const Pairs& pairs) {
  const int lane = threadIdx.x % 32;
  // TODO(17.7) If dropout.dropped > 0, get the mask of the block that contains these pairs. kept_pairs needs a block of
  // 32 queries; these queries may be its second half, so part j of S may be part j + 2 of the block. Then compute P and
  // dS as in exercise 9.3, with dropout (about 18 lines).
  // BEGIN 17.7
  const int first_part = pairs.first_query / 8 % 4;
  std::uint32_t kept = all_kept;
  if (dropout.dropped > 0)
    kept = kept_pairs<true>(dropout, pairs.head, pairs.first_query - 8 * first_part, pairs.first_key);
#pragma unroll
  for (int j = 0; j < parts; ++j) {
    const float4 stats = reinterpret_cast<const float4*>(row_stats)[4 * j + lane % 4];  // LSE, D; LSE, D of the next
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto [row, column] = position_in_part(lane, e);
        const int key = 16 * i + row, query = 8 * j + column;
        float P = exp2_ftz(S[i][j][e] * scale - (e % 2 == 0 ? stats.x : stats.z));
        if (mask.needed && (key >= mask.keys || key > query + mask.diagonal)) P = 0;
        const bool keep = is_kept(kept, i, first_part + j, e);
        S[i][j][e] = keep ? P : 0;
        dP[i][j][e] = P * ((keep ? dP[i][j][e] * dropout.kept_scale : 0) - (e % 2 == 0 ? stats.y : stats.w));
      }
  }
  // END 17.7
}

// rotate_pair_back: the inverse rotation of one pair (x, y) of a gradient; rotation is its cosine and sine.
// rotate_back: the same for all pairs of a warp's dK, 32 rows, of which the first `rows` exist. The partner of an
// element of part j < columns / 16 is the element of part j + columns / 16 with the same i and e (Plan::column). table
// (rows, d / 2) begins at the first row.
//
// TODO(17.8) Write rotate_pair_back. Then apply it to every pair of C whose row exists (about 12 lines).
// STUB: __device__ __forceinline__ float2 rotate_pair_back(float x, float y, float2 rotation) {
// STUB:   WORKBOOK_TODO(17.8);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void rotate_back(Result<T::columns / 8>& C, const float2* __restrict__ table,
// STUB:                                             int team_rank, int rows) {
// STUB:   WORKBOOK_TODO(17.8);
// STUB: }
// BEGIN 17.8
__device__ __forceinline__ float2 rotate_pair_back(float x, float y, float2 rotation) {
  return {x * rotation.x + y * rotation.y, y * rotation.x - x * rotation.y};
}
template <class T>
__device__ __forceinline__ void rotate_back(Result<T::columns / 8>& C, const float2* __restrict__ table, int team_rank,
                                            int rows) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto [row, column] = position_in_part(threadIdx.x % 32, e);
      if (16 * i + row >= rows) continue;
#pragma unroll
      for (int j = 0; j < T::columns / 16; ++j) {
        float &x = C[i][j][e], &y = C[i][j + T::columns / 16][e];
        const float2 pair =
            rotate_pair_back(x, y, table[(16 * i + row) * (T::d / 2) + T::column(team_rank, j) + column]);
        x = pair.x, y = pair.y;
      }
    }
}
// END 17.8

}  // namespace
}  // namespace ch17
