// Chapter 18, given: what becomes of a score, as in chapter 15. A change is a type, so that the compiler puts it where
// the scores are, as FlexAttention's score_mod and FlashInfer's variants are. It has
//
//   of_each_score               whether it does more than scale: then full tiles have to ask it too
//   scale                       what a product is multiplied by first
//   of_head(head, heads)        the change for one head
//   change(product, distance)   the score in units of log2, of a product Q_i·K_j whose key j is `distance` before the
//                               diagonal i + (Nk - Nq) of its query, or -distance after it
//
// Source: Press et al. 2022 (ALiBi), section 3; Gemma Team 2024 (Gemma 2), section 2; OpenAI 2025 (gpt-oss), section 2.
#pragma once

#include "common/cuda/kernel.hpp"
#include "common/cuda/ptx.hpp"

namespace ch18 {
namespace {

using workbook::cuda::exp2_ftz;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

/// scale·Q_i·K_j and nothing else. scale is in units of log2, as all that follows is.
struct Scaled {
  float scale;
  static constexpr bool of_each_score = false;
  __device__ Scaled of_head(int, int) const { return *this; }
  __device__ float operator()(float product, float) const { return product * scale; }
};

/// A change First, and then ALiBi: slope·|distance| is subtracted, with slope = 2^(-8(h + 1) / H) for head h of H.
template <class First>
struct WithAlibi {
  First first;
  float scale, slope = 0;
  static constexpr bool of_each_score = true;
  __device__ WithAlibi of_head(int head, int heads) const {
    return {first, scale, exp2f(-8 * float(head + 1) / float(heads)) * log2_e};
  }
  __device__ float operator()(float product, float distance) const {
    return first(product, distance) - slope * fabsf(distance);
  }
};

/// cap·tanh(x) with x = scale·Q_i·K_j / cap: scores stay within ±cap. cap is in units of log2 too. tanh(x) =
/// 1 - 2 / (1 + e^2x), and e^2x = exp2(rate·Q_i·K_j).
struct Softcap {
  float scale, cap, rate;
  static constexpr bool of_each_score = true;
  __device__ Softcap of_head(int, int) const { return *this; }
  __device__ float operator()(float product, float) const {
    return cap - __fdividef(2 * cap, 1 + exp2_ftz(rate * product));
  }
};

}  // namespace
}  // namespace ch18
