// Chapter 15: what becomes of a score. A change is a type, so that the compiler puts it where the scores are, as
// FlexAttention's score_mod and FlashInfer's variants are. It has
//
//   of_each_score               whether it does more than scale: then full tiles have to ask it too
//   scale                       what a product is multiplied by first
//   of_head(head, heads)        the change for one head
//   change(product, distance)   the score in units of log2, of a product Q_i·K_j whose key j is `distance` before the
//                               diagonal i + (Nk - Nq) of its query, or -distance after it
//   derivative(product)         its derivative by the scaled product, for the backward pass
//
// and the sink, which is a score of its own.
//
// Source: Press et al. 2022 (ALiBi), section 3; Gemma Team 2024 (Gemma 2), section 2; OpenAI 2025 (gpt-oss), section 2.
#pragma once

#include "phases.hpp"

namespace ch15 {
namespace {

/// scale·Q_i·K_j and nothing else. scale is in units of log2, as all that follows is.
struct Scaled {
  float scale;
  static constexpr bool of_each_score = false;
  __device__ Scaled of_head(int, int) const { return *this; }
  __device__ float operator()(float product, float) const { return product * scale; }
  __device__ float derivative(float) const { return 1; }
};

/// A change First, and then ALiBi: slope·|distance| is subtracted, with slope = 2^(-8(h + 1) / H) for head h of H.
template <class First>
struct WithAlibi {
  First first;
  float scale, slope = 0;
  static constexpr bool of_each_score = true;
  // TODO(15.5) The change for a head: its slope is in units of log2 like the scores, so it takes the factor log2_e. And
  // the score: what First makes of the product, less the slope for each key of distance (about 5 lines).
  // BEGIN 15.5
  __device__ WithAlibi of_head(int head, int heads) const { WORKBOOK_TODO(15.5); }
  __device__ float operator()(float product, float distance) const { WORKBOOK_TODO(15.5); }
  // END 15.5
  __device__ float derivative(float product) const { return first.derivative(product); }
};

/// cap·tanh(scale·Q_i·K_j / cap): scores stay within ±cap. cap is in units of log2 too.
struct Softcap {
  float scale, cap, scale_over_cap;
  static constexpr bool of_each_score = true;
  __device__ Softcap of_head(int, int) const { return *this; }
  // TODO(15.6) tanh(x) = 1 - 2 / (1 + e^2x): for large x of either sign that is 1 and -1. There is no instruction for
  // e^2x, and __fdividef divides faster than / (2 lines).
  // BEGIN 15.6
  __device__ float operator()(float product, float) const { WORKBOOK_TODO(15.6); }
  // END 15.6
  // TODO(15.10) The derivative of cap·tanh(x), by x·cap. What you wrote for 15.6 gives the score, which has tanh(x) in
  // it (2 lines).
  // BEGIN 15.10
  __device__ float derivative(float product) const { WORKBOOK_TODO(15.10); }
  // END 15.10
};

/// The state before the first key. The sink, in units of log2, is a score without a key: it counts in m and l and adds
/// nothing to O. -inf: there is none, and what it adds to l is 0 at the first key's m.
template <class Element, int d>
__device__ __forceinline__ void begin_with_sink(Registers<Element, d>& own, float sink) {
  // TODO(15.7) clear(own, m, l) with the m and l of a row that has seen the sink alone. Note that l of a row is the sum
  // over its quad (1 line).
  // BEGIN 15.7
  WORKBOOK_TODO(15.7);
  // END 15.7
}

}  // namespace
}  // namespace ch15
