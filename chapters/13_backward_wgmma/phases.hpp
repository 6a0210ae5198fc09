// Chapter 13: the phases of a consumer up to dK and dV. dQ, which all keys have a part in, is in dQ.hpp.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1.
#pragma once

#include "blocks.hpp"

namespace ch13 {
namespace {

/// Starts Sᵀ = K Qᵀ or dPᵀ = V dOᵀ of 64 keys, from row `own` on: (64, d), (Br, d) -> (64, Br). What S held before is
/// not read: as an output alone it takes no registers up to here.
template <class T>
__device__ __forceinline__ void start_scores(typename T::Scores& S, const Tile<typename T::Element, T::d, T::Bc>& keys,
                                             int own, const Tile<typename T::Element, T::d, T::Br>& queries) {
  using Element [[maybe_unused]] = typename T::Element;
  // TODO(13.1) A fence; a product for each 16 columns, of which the first has S for its output alone; a group (about 6
  // lines).
  // BEGIN 13.1
  WORKBOOK_TODO(13.1);
  // END 13.1
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
//
// TODO(13.3) Sᵀ -> Pᵀ = exp2(Sᵀ·scale - LSE) in the eights of queries from begin to end - 1, and dPᵀ -> dSᵀ =
// Pᵀ∘(dPᵀ - D) in all, both in place (about 18 lines).
// BEGIN 13.3
template <int begin, int end, int n, class OfQueries>
__device__ __forceinline__ void exponentiate(Fragment<float, n>& S, const OfQueries& lse, float scale) {
  WORKBOOK_TODO(13.3);
}
template <int n, class OfQueries>
__device__ __forceinline__ void differentiate(Fragment<float, n>& dP, const Fragment<float, n>& P,
                                              const OfQueries& D) {
  WORKBOOK_TODO(13.3);
}
// END 13.3

// Pᵀ and dSᵀ are left operands where they lie, as P is in chapter 11: what a thread holds of 16 queries is, rounded,
// what wgmma wants of an A (64, 16). The right operands are dO and Q, whose rows are summed over.
//
// TODO(13.5) To Element, the eights of queries from begin to end - 1. And dV += Pᵀ dO or dK += dSᵀ Q over sixteens of
// queries: a fence, a product for each, a group (about 16 lines).
// BEGIN 13.5
template <int begin, int end, class Element, int parts, int n>
__device__ __forceinline__ void round(Fragment<Element, 4> (&A)[parts], const Fragment<float, n>& S) {
  WORKBOOK_TODO(13.5);
}
template <class T, int begin = 0, int end = T::Br / 16>
__device__ __forceinline__ void start_sum(typename T::Gradient& sum, const typename T::Operand& A,
                                          const Tile<typename T::Element, T::d, T::Br>& rows) {
  WORKBOOK_TODO(13.5);
}
// END 13.5

/// dK·scale or dV, rounded, to the consumer's 64 rows of a tile from row `own` on, and from there by TMA, which leaves
/// out the rows that do not exist.
template <class T>
__device__ __forceinline__ void store_gradient(Tile<typename T::Element, T::d, T::Bc>& tile, const TensorMap& tensor,
                                               const typename T::Gradient& sum, float scale, int own,
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
  for (int s = 0; s < T::d / 64; ++s)
    cp_async_bulk_tensor_store(tensor, tile[s][own], 0, work.first_key + own, s, work.head);
  cp_async_bulk_commit_group();
}

}  // namespace
}  // namespace ch13
