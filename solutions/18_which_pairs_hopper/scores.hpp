// Chapter 18, given: score modifications (the score_mod of FlexAttention), as in chapter 15. A score modification is a
// type, so that the compiler inlines it into the loop over the scores. It has
//
//   modifies_scores          whether it does more than scale; if so, full tiles apply it too
//   scale                    the factor of every dot product
//   for_head(head, heads)    the score modification of one head
//   score_mod(qk, distance)  the score in units of log2, from the dot product qk = Q_i·K_j; `distance` is i + (Nk - Nq)
//                            - j, how far key j is before the diagonal of query i
//
// Source: Press et al. 2021 (ALiBi), section 3; Gemma Team 2024 (Gemma 2), section 2; OpenAI 2025 (gpt-oss), section 2.
#pragma once

#include "common/cuda/kernel.hpp"
#include "common/cuda/ptx.hpp"

namespace ch18 {
namespace {

using workbook::cuda::exp2_ftz;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

/// scale·Q_i·K_j only. scale includes log2(e).
struct Scaled {
  float scale;
  static constexpr bool modifies_scores = false;
  __device__ Scaled for_head(int, int) const { return *this; }
  __device__ float operator()(float qk, float) const { return qk * scale; }
};

/// The score modification First, then ALiBi: subtracts slope·|distance|, with slope = 2^(-8(h + 1) / H) for head h of
/// H.
template <class First>
struct WithAlibi {
  First first;
  float scale, slope = 0;
  static constexpr bool modifies_scores = true;
  __device__ WithAlibi for_head(int head, int heads) const {
    return {first, scale, exp2f(-8 * float(head + 1) / float(heads)) * log2_e};
  }
  __device__ float operator()(float qk, float distance) const { return first(qk, distance) - slope * fabsf(distance); }
};

/// cap·tanh(x) with x = scale·Q_i·K_j / cap: scores stay within ±cap. cap includes log2(e) too. tanh(x) =
/// 1 - 2 / (1 + e^2x), and e^2x = exp2(rate·Q_i·K_j).
struct Softcap {
  float scale, cap, rate;
  static constexpr bool modifies_scores = true;
  __device__ Softcap for_head(int, int) const { return *this; }
  __device__ float operator()(float qk, float) const { return cap - __fdividef(2 * cap, 1 + exp2_ftz(rate * qk)); }
};

}  // namespace
}  // namespace ch18
