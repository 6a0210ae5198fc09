// Chapter 19: the phases of a consumer up to dK and dV. All but P are chapter 13's. dQ, which all keys have a part in,
// is in dQ.hpp.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1.
#pragma once

#include "blocks.hpp"

namespace ch19 {
namespace {

/// Starts Sᵀ = K Qᵀ or dPᵀ = V dOᵀ of 64 keys, from row `own` on: (64, d), (Br, d) -> (64, Br). What S held before is
/// not read: as an output alone it takes no registers up to here.
template <class T>
__device__ __forceinline__ void start_scores(typename T::Scores& S, const Tile<typename T::Element, T::d, T::Bc>& keys,
                                             int own, const Tile<typename T::Element, T::d, T::Br>& queries) {
  using Element [[maybe_unused]] = typename T::Element;
  wgmma_fence();
  wgmma_mma_async<Element>(S, sixteen_columns(keys, own, 0), sixteen_columns(queries, 0, 0));
#pragma unroll
  for (int c = 1; c < T::d / 16; ++c)
    wgmma_mma_async<Element>(S, sixteen_columns(keys, own, c), sixteen_columns(queries, 0, c), true);
  wgmma_commit_group();
}

/// What a lane needs of the queries' LSE, or D: of queries 8j + 2·(lane % 4) and the next one, for each j below n. If
/// `ahead`, load() brings all of it into registers, while shared memory has nothing else to do. Where there are no
/// registers for it, each is read where it is used.
template <int n, bool ahead>
struct OfQueries {
  const float2* place;
  float2 kept[ahead ? n : 1];
  __device__ __forceinline__ void load(const float* statistics) {
    place = reinterpret_cast<const float2*>(statistics) + threadIdx.x % 4;
    if constexpr (ahead) {
#pragma unroll
      for (int j = 0; j < n; ++j) kept[j] = place[4 * j];
    }
  }
  __device__ __forceinline__ float2 operator()(int j) const {
    if constexpr (ahead) return kept[j];
    return place[4 * j];
  }
};

// A column is a query. Of each eight queries a lane has four elements, S[4j] to S[4j + 3]: two neighbouring queries of
// one key, then the same two of the key eight rows below. lse(j) and D(j) are what these two queries bring, in x and y.

/// What a lane has to know of its two keys in a tile (64 keys, Br queries): the queries that see them, and how far they
/// are before the diagonal of the lane's first query. All are counted from that query on.
struct OfKeys {
  Range queries[2];
  float distance;  // of the first key; of the second it is 8 less
  __device__ __forceinline__ OfKeys(const SeenKeys& seen, int first_key, int first_query) {
    const auto [row, column] = place_in_D(threadIdx.x % 128, 0);
    const int key = first_key + row, query = first_query + column;
    distance = float(query + seen.Nk - seen.Nq - key);
    // TODO(19.3) The range of queries that see key + 8·r, for r = 0 and 1; none if that key does not exist. Both ends,
    // the first one and the one behind the last, less `query`: so that element 4·j + 2·r + i, whose query is `query` +
    // 8·j + i, only has to compare a constant (about 5 lines).
    // BEGIN 19.3
    for (int r = 0; r < 2; ++r) {
      const int own = key + 8 * r;
      const Range all = own < seen.Nk ? seen.queries({own, own + 1}) : Range{0, 0};
      queries[r] = {all.first - query, all.last - query};
    }
    // END 19.3
  }
};

// Two things are made of a score, and both are 0 for a pair that does not count: P, rounded, which dV += Pᵀ dO takes;
// and P·derivative in fp32, of which dS = P·derivative·(dP - D) is made when dP is there. The product is known only
// here, where the second takes its place.
//
// TODO(19.4) In the eights of queries from begin to end - 1: P = exp2(score - LSE) of change(product, distance), both
// in units of log2; two neighbours a register of P (cvt_rn_x2, the lower query first), which is A of dV as it lies, as
// in chapter 13: P[j / 2][j % 2 * 2 + r]. And P·derivative in place of the product. In a tile that is `masked` a pair
// counts if its query is one of keys.queries[r]. And if Change::sixteen_at_a_time, a __syncwarp() stands behind each 16
// queries (about 17 lines).
// STUB: template <bool masked, int begin, int end, class Element, int parts, int n, class OfQueries, class Change>
// STUB: __device__ __forceinline__ void exponentiate(Fragment<Element, 4> (&P)[parts], Fragment<float, n>& S,
// STUB:                                              const OfQueries& lse, const Change& change, const OfKeys& keys) {
// STUB:   WORKBOOK_TODO(19.4);
// STUB: }
// BEGIN 19.4
template <bool masked, int begin, int end, class Element, int parts, int n, class OfQueries, class Change>
__device__ __forceinline__ void exponentiate(Fragment<Element, 4> (&P)[parts], Fragment<float, n>& S,
                                             const OfQueries& lse, const Change& change, const OfKeys& keys) {
#pragma unroll
  for (int j = begin; j < end; ++j) {
    const float2 two = lse(j);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float both[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int query = 8 * j + i;
        float& product = S[4 * j + 2 * r + i];
        const auto [score, derivative] = change(product, keys.distance + float(query - 8 * r));
        both[i] = exp2_ftz(score - (i == 0 ? two.x : two.y));
        if (masked && (query < keys.queries[r].first || keys.queries[r].last <= query)) both[i] = 0;
        product = both[i] * derivative;
      }
      P[j / 2][j % 2 * 2 + r] = cvt_rn_x2<Element>(both[0], both[1]);
    }
    if (Change::sixteen_at_a_time && j % 2 == 1) __syncwarp();
  }
}
// END 19.4

/// dPᵀ -> dSᵀ = (P·derivative)ᵀ∘(dPᵀ - D), in place.
template <int n, class OfQueries>
__device__ __forceinline__ void differentiate(Fragment<float, n>& dP, const Fragment<float, n>& P, const OfQueries& D) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j) {
    const float2 two = D(j);
#pragma unroll
    for (int e = 0; e < 4; ++e) dP[4 * j + e] = P[4 * j + e] * (dP[4 * j + e] - (e % 2 == 0 ? two.x : two.y));
  }
}

// Pᵀ and dSᵀ are left operands where they lie: what a thread holds of 16 queries is, rounded, what wgmma wants of an A
// (64, 16). The right operands are dO and Q, whose rows are summed over.

/// dS to Element.
template <class Element, int parts, int n>
__device__ __forceinline__ void round_dS(Fragment<Element, 4> (&A)[parts], const Fragment<float, n>& dS) {
#pragma unroll
  for (int j = 0; j < parts; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) A[j][i] = cvt_rn_x2<Element>(dS[8 * j + 2 * i], dS[8 * j + 2 * i + 1]);
}
/// dV += Pᵀ dO or dK += dSᵀ Q over the sixteens of queries from begin to end - 1.
template <class T, int begin = 0, int end = T::Br / 16>
__device__ __forceinline__ void start_sum(typename T::Gradient& sum, const typename T::Operand& A,
                                          const Tile<typename T::Element, T::d, T::Br>& rows) {
  using Element = typename T::Element;
  wgmma_fence();
#pragma unroll
  for (int j = begin; j < end; ++j) wgmma_mma_async<Element, Major::n>(sum, A[j], sixteen_rows(rows, j), true);
  wgmma_commit_group();
}

/// dK·scale or dV, rounded, to the consumer's 64 rows of a tile from row `own` on, and from there by TMA, which leaves
/// out the rows that are not the sequence's.
template <class T>
__device__ __forceinline__ void store_gradient(Tile<typename T::Element, T::d, T::Bc>& tile, const TensorMap& tensor,
                                               const typename T::Gradient& sum, float scale, int own, const Call& call,
                                               const Work<T>& work) {
  using Element = typename T::Element;
  const int thread = threadIdx.x % 128, row = own + thread / 32 * 16 + thread % 16;
#pragma unroll
  for (int c = 0; c < T::d / 16; ++c) {
    Fragment<Element, 4> part;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      part[i] = cvt_rn_x2<Element>(sum[8 * c + 2 * i] * scale, sum[8 * c + 2 * i + 1] * scale);
    stmatrix_x4(swizzled(tile[c / 4], row, c % 4 * 2 + thread % 32 / 16), part);
  }
  fence_proxy_async();
  barrier_sync(stored + own / 64, 128);  // all of the consumer's rows are there
  if (thread != 0) return;
  const SequenceRows keys = rows_of_sequence(work.kv_head, call.seen.Nk, work.first_row, work.seen.Nk);
  for (int s = 0; s < T::d / 64; ++s)
    cp_async_bulk_tensor_store(tensor, tile[s][own], 0, keys.before_first + work.first_key + own, s, keys.end);
  cp_async_bulk_commit_group();
}

}  // namespace
}  // namespace ch19
