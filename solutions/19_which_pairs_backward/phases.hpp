// Chapter 19: the phases of a consumer up to dK and dV. All but P are chapter 13's. dQ, to which all keys contribute,
// is in dQ.hpp.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1.
#pragma once

#include "blocks.hpp"

namespace ch19 {
namespace {

/// Starts Sᵀ = K Qᵀ or dPᵀ = V dOᵀ: (64, d), (Br, d) -> (64, Br). A is K or V, of which the consumer's 64 rows begin at
/// first_key; B is Q or dO. The first MMA only writes S, so that no registers hold the old S up to here.
template <class T>
__device__ __forceinline__ void start_scores(typename T::Scores& S, const Tile<typename T::Element, T::d, T::Bc>& A,
                                             int first_key, const Tile<typename T::Element, T::d, T::Br>& B) {
  using Element [[maybe_unused]] = typename T::Element;
  wgmma_fence();
  wgmma_mma_async<Element>(S, K_major_descriptor(A, first_key, 0), K_major_descriptor(B, 0, 0));
#pragma unroll
  for (int c = 1; c < T::d / 16; ++c)
    wgmma_mma_async<Element>(S, K_major_descriptor(A, first_key, c), K_major_descriptor(B, 0, c), true);
  wgmma_commit_group();
}

/// A lane's LSE or D values: of queries 8j + 2·(lane % 4) and the next one, for each j below n. If `preload`, load()
/// copies all of them to registers, while shared memory is idle. Otherwise, where registers are scarce, each is read
/// where it is used.
template <int n, bool preload>
struct QueryStats {
  const float2* source;
  float2 loaded[preload ? n : 1];
  __device__ __forceinline__ void load(const float* stats) {
    source = reinterpret_cast<const float2*>(stats) + threadIdx.x % 4;
    if constexpr (preload) {
#pragma unroll
      for (int j = 0; j < n; ++j) loaded[j] = source[4 * j];
    }
  }
  __device__ __forceinline__ float2 operator()(int j) const {
    if constexpr (preload) return loaded[j];
    return source[4 * j];
  }
};

// A column is a query. In column group j, eight queries, a lane has four elements, S[4j] to S[4j + 3]: two adjacent
// queries of one key, then the same queries of the key eight rows below. lse(j) and D(j) return the statistics of the
// two queries in x and y.

/// A lane's two keys in a tile (64 keys, Br queries): the queries that attend to each, and the distance of the first
/// key from the diagonal of the lane's first query. Queries are counted from the lane's first query.
struct LaneKeys {
  Range queries[2];
  float distance;  // of the first key; that of the second is 8 less
  __device__ __forceinline__ LaneKeys(const WindowMask& mask, int first_key, int first_query) {
    const auto [row, column] = coordinates_in_D(threadIdx.x % 128, 0);
    const int key = first_key + row, query = first_query + column;
    distance = float(query + mask.Nk - mask.Nq - key);
    // TODO(19.3) queries[r] for r = 0 and 1: the range of queries that attend to key + 8·r; empty if that key does not
    // exist. Subtract `query` from both ends, so that element 4·j + 2·r + i, whose query is `query` + 8·j + i, is
    // compared with a constant (about 5 lines).
    // BEGIN 19.3
    for (int r = 0; r < 2; ++r) {
      const int lane_key = key + 8 * r;
      const Range range = lane_key < mask.Nk ? mask.query_range({lane_key, lane_key + 1}) : Range{0, 0};
      queries[r] = {range.first - query, range.last - query};
    }
    // END 19.3
  }
};

// Two values are computed from a score, and both are 0 for a masked pair: P, rounded, the left operand of dV += Pᵀ dO;
// and P·derivative in fp32, from which dS = P·derivative·(dP - D) is computed when dP is complete. The dot product is
// read only here, so P·derivative overwrites it.
//
// TODO(19.4) For the column groups from begin to end - 1: compute P = exp2(score - LSE), where score_mod(qk,
// distance) returns the score, in units of log2, and the derivative. Round P of two adjacent queries to one register of
// operand P[j / 2] (cvt_rn_x2, the lower query first), and replace the dot product by P·derivative. If the tile is
// `masked`, both are 0 unless the query is in keys.queries[r]. If ScoreMod::sync_every_16_queries, execute __syncwarp()
// after each 16 queries (about 17 lines).
// STUB: template <bool masked, int begin, int end, class Element, int operands, int n, class Stats, class ScoreMod>
// STUB: __device__ __forceinline__ void exponentiate(Fragment<Element, 4> (&P)[operands], Fragment<float, n>& S,
// STUB:                                              const Stats& lse, const ScoreMod& score_mod,
// STUB:                                              const LaneKeys& keys) {
// STUB:   WORKBOOK_TODO(19.4);
// STUB: }
// BEGIN 19.4
template <bool masked, int begin, int end, class Element, int operands, int n, class Stats, class ScoreMod>
__device__ __forceinline__ void exponentiate(Fragment<Element, 4> (&P)[operands], Fragment<float, n>& S,
                                             const Stats& lse, const ScoreMod& score_mod, const LaneKeys& keys) {
#pragma unroll
  for (int j = begin; j < end; ++j) {
    const float2 pair = lse(j);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float weights[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = 8 * j + i;
        float& element = S[4 * j + 2 * r + i];  // the dot product, then P·derivative
        const auto [score, derivative] = score_mod(element, keys.distance + float(query - 8 * r));
        weights[i] = exp2_ftz(score - (i == 0 ? pair.x : pair.y));
        if (masked && (query < keys.queries[r].first || keys.queries[r].last <= query)) weights[i] = 0;
        element = weights[i] * derivative;
      }
      P[j / 2][j % 2 * 2 + r] = cvt_rn_x2<Element>(weights[0], weights[1]);
    }
    if (ScoreMod::sync_every_16_queries && j % 2 == 1) __syncwarp();
  }
}
// END 19.4

/// dPᵀ -> dSᵀ = (P·derivative)ᵀ∘(dPᵀ - D), in place.
template <int n, class Stats>
__device__ __forceinline__ void differentiate(Fragment<float, n>& dP, const Fragment<float, n>& P, const Stats& D) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j) {
    const float2 pair = D(j);
#pragma unroll
    for (int e = 0; e < 4; ++e) dP[4 * j + e] = P[4 * j + e] * (dP[4 * j + e] - (e % 2 == 0 ? pair.x : pair.y));
  }
}

// Pᵀ and dSᵀ become left operands in the same registers, as P does in chapter 11: a thread's elements of 16 queries,
// rounded, are its fragment of A (64, 16). B is dO or Q; the MMAs sum over its rows, which are queries.

/// Rounds dS to Element.
template <class Element, int operands, int n>
__device__ __forceinline__ void round_to_operands(Fragment<Element, 4> (&A)[operands], const Fragment<float, n>& S) {
#pragma unroll
  for (int j = 0; j < operands; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) A[j][i] = cvt_rn_x2<Element>(S[8 * j + 2 * i], S[8 * j + 2 * i + 1]);
}
/// Starts dV += Pᵀ dO or dK += dSᵀ Q over the operands of 16 queries from begin to end - 1.
template <class T, int begin = 0, int end = T::Br / 16>
__device__ __forceinline__ void start_accumulate(typename T::Gradient& C, const typename T::Operands& A,
                                                 const Tile<typename T::Element, T::d, T::Br>& B) {
  using Element = typename T::Element;
  wgmma_fence();
#pragma unroll
  for (int j = begin; j < end; ++j) wgmma_mma_async<Element, Major::n>(C, A[j], MN_major_descriptor(B, j), true);
  wgmma_commit_group();
}

/// Rounds scale·dK or dV, and stores it to the consumer's 64 rows of `tile`, which begin at first_key. From there a TMA
/// store writes it to device memory, without the rows past the sequence's end.
template <class T>
__device__ __forceinline__ void store_gradient(Tile<typename T::Element, T::d, T::Bc>& tile, const TensorMap& tensor,
                                               const typename T::Gradient& gradient, float scale, int first_key,
                                               const Call& call, const WorkTile<T>& work) {
  using Element = typename T::Element;
  const int thread = threadIdx.x % 128, row = first_key + thread / 32 * 16 + thread % 16;
#pragma unroll
  for (int c = 0; c < T::d / 16; ++c) {
    Fragment<Element, 4> rounded;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      rounded[i] = cvt_rn_x2<Element>(gradient[8 * c + 2 * i] * scale, gradient[8 * c + 2 * i + 1] * scale);
    stmatrix_x4(swizzled(tile[c / 4], row, c % 4 * 2 + thread % 32 / 16), rounded);
  }
  fence_proxy_async();
  barrier_sync(stored + first_key / 64, 128);  // all 64 rows of the consumer are written
  if (thread != 0) return;
  const SequenceRows keys = rows_of_sequence(work.kv_head, call.mask.Nk, work.first_row, work.mask.Nk);
  for (int s = 0; s < T::d / 64; ++s)
    cp_async_bulk_tensor_store(tensor, tile[s][first_key], 0, keys.before_first + work.first_key + first_key, s,
                               keys.end);
  cp_async_bulk_commit_group();
}

}  // namespace
}  // namespace ch19
