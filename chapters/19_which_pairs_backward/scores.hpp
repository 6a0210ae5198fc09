// Chapter 19, given: what becomes of a score, and its derivative, as in chapter 15. A change is a type, so that the
// compiler puts it where the scores are, as FlexAttention's score_mod and FlashInfer's variants are. It has
//
//   sixteen_at_a_time           whether the compiler has to be kept from working at more than 16 queries at once: where
//                               a score takes many steps, it would begin so many that a consumer's registers run out
//   of_head(head, heads)        the change for one head
//   change(product, distance)   the score in units of log2, of a product Q_i·K_j whose key j is `distance` before the
//                               diagonal i + (Nk - Nq) of its query, or -distance after it; and its derivative by the
//                               scaled product. Both at once, since both may need the same exponential.
//
// Source: Press et al. 2022 (ALiBi), section 3; Gemma Team 2024 (Gemma 2), section 2.
#pragma once

#include "common/cuda/kernel.hpp"
#include "common/cuda/ptx.hpp"

namespace ch19 {
namespace {

using workbook::cuda::exp2_ftz;

constexpr float log2_e = 1.4426950408889634f;

/// What becomes of a product.
struct Changed {
  float score, derivative;
};

/// scale·Q_i·K_j and nothing else. scale is in units of log2, as all that follows is.
struct Scaled {
  float scale;
  static constexpr bool sixteen_at_a_time = false;
  __device__ Scaled of_head(int, int) const { return *this; }
  __device__ Changed operator()(float product, float) const { return {product * scale, 1}; }
};

/// A change First, and then ALiBi: slope·|distance| is subtracted, with slope = 2^(-8(h + 1) / H) for head h of H.
template <class First>
struct WithAlibi {
  First first;
  float slope = 0;
  static constexpr bool sixteen_at_a_time = First::sixteen_at_a_time;
  __device__ WithAlibi of_head(int head, int heads) const {
    return {first, exp2f(-8 * float(head + 1) / float(heads)) * log2_e};
  }
  __device__ Changed operator()(float product, float distance) const {
    const auto [score, derivative] = first(product, distance);
    return {score - slope * fabsf(distance), derivative};
  }
};

/// cap·tanh(x) with x = scale·Q_i·K_j / cap: scores stay within ±cap. cap is in units of log2 too. tanh(x) =
/// 1 - 2 / (1 + e^2x), and e^2x = exp2(rate·Q_i·K_j); the derivative is 1 - tanh(x)².
struct Softcap {
  float cap, rate;
  static constexpr bool sixteen_at_a_time = true;
  __device__ Softcap of_head(int, int) const { return *this; }
  __device__ Changed operator()(float product, float) const {
    const float tanh = 1 - __fdividef(2, 1 + exp2_ftz(rate * product));
    return {cap * tanh, 1 - tanh * tanh};
  }
};

}  // namespace
}  // namespace ch19
