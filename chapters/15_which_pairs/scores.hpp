// Chapter 15: score modifications (the score_mod of FlexAttention), and the attention sink. A score modification is a
// type, so that the compiler inlines it into the loop over the scores. It has
//
//   modifies_scores          whether it does more than scale; if so, full tiles apply it too
//   scale                    the factor of every dot product
//   for_head(head, heads)    the score modification of one head
//   score_mod(qk, distance)  the score in units of log2, from the dot product qk = Q_i·K_j; `distance` is i + (Nk - Nq)
//                            - j, how far key j is before the diagonal of query i
//   derivative(qk)           its derivative with respect to the scaled dot product, for the backward pass
//
// Source: Press et al. 2021 (ALiBi), section 3; Gemma Team 2024 (Gemma 2), section 2; OpenAI 2025 (gpt-oss), section 2.
#pragma once

#include "phases.hpp"

namespace ch15 {
namespace {

/// scale·Q_i·K_j only. scale includes log2(e).
struct Scaled {
  float scale;
  static constexpr bool modifies_scores = false;
  __device__ Scaled for_head(int, int) const { return *this; }
  __device__ float operator()(float qk, float) const { return qk * scale; }
  __device__ float derivative(float) const { return 1; }
};

/// The score modification First, then ALiBi: subtracts slope·|distance|, with slope = 2^(-8(h + 1) / H) for head h of
/// H.
template <class First>
struct WithAlibi {
  First first;
  float scale, slope = 0;
  static constexpr bool modifies_scores = true;
  // TODO(15.5) for_head: the same `first` and `scale`, and the slope of this head in units of log2 (times log2_e).
  // operator(): the score that `first` returns, less slope·|distance| (about 5 lines).
  // BEGIN 15.5
  __device__ WithAlibi for_head(int head, int heads) const { WORKBOOK_TODO(15.5); }
  __device__ float operator()(float qk, float distance) const { WORKBOOK_TODO(15.5); }
  // END 15.5
  __device__ float derivative(float qk) const { return first.derivative(qk); }
};

/// cap·tanh(scale·Q_i·K_j / cap): scores stay within ±cap. cap includes log2(e) too.
struct Softcap {
  float scale, cap, scale_over_cap;
  static constexpr bool modifies_scores = true;
  __device__ Softcap for_head(int, int) const { return *this; }
  // TODO(15.6) cap·tanh(x) with x = qk·scale / cap and tanh(x) = 1 - 2 / (1 + e^2x), which is also right when e^2x is
  // infinite. Use exp2_ftz for e^2x, and __fdividef, which is faster than / (2 lines).
  // BEGIN 15.6
  __device__ float operator()(float qk, float) const { WORKBOOK_TODO(15.6); }
  // END 15.6
  // TODO(15.10) The derivative of cap·tanh(x) with respect to cap·x. operator() of 15.6 already computes cap·tanh(x) (2
  // lines).
  // BEGIN 15.10
  __device__ float derivative(float qk) const { WORKBOOK_TODO(15.10); }
  // END 15.10
};

/// The state before the first key. The sink, in units of log2, is a score without a key: it contributes to m and l, but
/// not to O. -inf means no sink: the first key then multiplies l by 0.
template <class Element, int d>
__device__ __forceinline__ void begin_with_sink(Registers<Element, d>& registers, float sink) {
  // TODO(15.7) clear(registers, m, l) with m and l of a row whose only score is the sink. A row's l is the sum over
  // the four lanes of its quad (1 line).
  // BEGIN 15.7
  WORKBOOK_TODO(15.7);
  // END 15.7
}

}  // namespace
}  // namespace ch15
