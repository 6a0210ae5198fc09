// Chapter 13: the phases of a consumer up to dK and dV. dQ, to which all keys contribute, is in dQ.hpp.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1.
#pragma once

#include "blocks.hpp"

namespace ch13 {
namespace {

/// Starts Sᵀ = K Qᵀ or dPᵀ = V dOᵀ: (64, d), (Br, d) -> (64, Br). A is K or V, of which the consumer's 64 rows begin at
/// first_row; B is Q or dO. The first MMA only writes S, so that no registers hold the old S up to here.
template <class T>
__device__ __forceinline__ void start_scores(typename T::Scores& S, const Tile<typename T::Element, T::d, T::Bc>& A,
                                             int first_row, const Tile<typename T::Element, T::d, T::Br>& B) {
  using Element [[maybe_unused]] = typename T::Element;
  // TODO(13.1) A fence; one MMA per 16 columns of d, of which the first only writes S and the others accumulate; then
  // commit the wgmma group (about 6 lines).
  // BEGIN 13.1
  wgmma_fence();
  wgmma_mma_async<Element>(S, K_major_descriptor(A, first_row, 0), K_major_descriptor(B, 0, 0));
#pragma unroll
  for (int c = 1; c < T::d / 16; ++c)
    wgmma_mma_async<Element>(S, K_major_descriptor(A, first_row, c), K_major_descriptor(B, 0, c), true);
  wgmma_commit_group();
  // END 13.1
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
//
// TODO(13.3) exponentiate: Pᵀ = exp2(Sᵀ·scale - LSE) in place, in the column groups from begin to end - 1.
// differentiate: replace dPᵀ by dSᵀ = Pᵀ∘(dPᵀ - D), in all column groups (about 18 lines).
// STUB: template <int begin, int end, int n, class Stats>
// STUB: __device__ __forceinline__ void exponentiate(Fragment<float, n>& S, const Stats& lse, float scale) {
// STUB:   WORKBOOK_TODO(13.3);
// STUB: }
// STUB: template <int n, class Stats>
// STUB: __device__ __forceinline__ void differentiate(Fragment<float, n>& dP, const Fragment<float, n>& P,
// STUB:                                               const Stats& D) {
// STUB:   WORKBOOK_TODO(13.3);
// STUB: }
// BEGIN 13.3
template <int begin, int end, int n, class Stats>
__device__ __forceinline__ void exponentiate(Fragment<float, n>& S, const Stats& lse, float scale) {
#pragma unroll
  for (int j = begin; j < end; ++j) {
    const float2 pair = lse(j);
#pragma unroll
    for (int e = 0; e < 4; ++e) S[4 * j + e] = exp2_ftz(S[4 * j + e] * scale - (e % 2 == 0 ? pair.x : pair.y));
  }
}
template <int n, class Stats>
__device__ __forceinline__ void differentiate(Fragment<float, n>& dP, const Fragment<float, n>& P, const Stats& D) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j) {
    const float2 pair = D(j);
#pragma unroll
    for (int e = 0; e < 4; ++e) dP[4 * j + e] = P[4 * j + e] * (dP[4 * j + e] - (e % 2 == 0 ? pair.x : pair.y));
  }
}
// END 13.3

// Pᵀ and dSᵀ become left operands in the same registers, as P does in chapter 11: a thread's elements of 16 queries,
// rounded, are its fragment of A (64, 16). B is dO or Q; the MMAs sum over its rows, which are queries.
//
// TODO(13.5) round_to_operands: rounds the column groups (eight queries) from begin to end - 1 to Element.
// start_accumulate: dV += Pᵀ dO or dK += dSᵀ Q over the operands (16 queries) from begin to end - 1: a fence, one MMA
// per operand, then commit the wgmma group (about 16 lines).
// STUB: template <int begin, int end, class Element, int operands, int n>
// STUB: __device__ __forceinline__ void round_to_operands(Fragment<Element, 4> (&A)[operands],
// STUB:                                                   const Fragment<float, n>& S) {
// STUB:   WORKBOOK_TODO(13.5);
// STUB: }
// STUB: template <class T, int begin = 0, int end = T::Br / 16>
// STUB: __device__ __forceinline__ void start_accumulate(typename T::Gradient& C, const typename T::Operands& A,
// STUB:                                                  const Tile<typename T::Element, T::d, T::Br>& B) {
// STUB:   WORKBOOK_TODO(13.5);
// STUB: }
// BEGIN 13.5
template <int begin, int end, class Element, int operands, int n>
__device__ __forceinline__ void round_to_operands(Fragment<Element, 4> (&A)[operands], const Fragment<float, n>& S) {
#pragma unroll
  for (int j = begin / 2; j < end / 2; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) A[j][i] = cvt_rn_x2<Element>(S[8 * j + 2 * i], S[8 * j + 2 * i + 1]);
}
template <class T, int begin = 0, int end = T::Br / 16>
__device__ __forceinline__ void start_accumulate(typename T::Gradient& C, const typename T::Operands& A,
                                                 const Tile<typename T::Element, T::d, T::Br>& B) {
  using Element = typename T::Element;
  wgmma_fence();
#pragma unroll
  for (int j = begin; j < end; ++j) wgmma_mma_async<Element, Major::n>(C, A[j], MN_major_descriptor(B, j), true);
  wgmma_commit_group();
}
// END 13.5

/// Rounds scale·dK or dV, and stores it to the consumer's 64 rows of `tile`, which begin at first_key. From there a TMA
/// store writes it to device memory, without the rows past Nk.
template <class T>
__device__ __forceinline__ void store_gradient(Tile<typename T::Element, T::d, T::Bc>& tile, const TensorMap& tensor,
                                               const typename T::Gradient& gradient, float scale, int first_key,
                                               const WorkTile<T>& work) {
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
  for (int s = 0; s < T::d / 64; ++s)
    cp_async_bulk_tensor_store(tensor, tile[s][first_key], 0, work.first_key + first_key, s, work.head);
  cp_async_bulk_commit_group();
}

}  // namespace
}  // namespace ch13
