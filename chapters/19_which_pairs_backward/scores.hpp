// Chapter 19, given: score modifications and their derivatives, as in chapter 15. A score modification is a type, so
// that the compiler inlines it into the loop over the scores. It has
//
//   sync_every_16_queries    whether the loop needs a __syncwarp() per 16 queries. It keeps the compiler from
//                            interleaving long computations for more queries, which would need too many registers
//   for_head(head, heads)    the score modification of one head
//   score_mod(qk, distance)  the score in units of log2, from the dot product qk = Q_i·K_j, and its derivative with
//                            respect to the scaled dot product; `distance` is i + (Nk - Nq) - j, how far key j is
//                            before the diagonal of query i. One call returns both, because both may need the same
//                            exponential
//
// Source: Press et al. 2021 (ALiBi), section 3; Gemma Team 2024 (Gemma 2), section 2.
#pragma once

#include "common/cuda/kernel.hpp"
#include "common/cuda/ptx.hpp"

namespace ch19 {
namespace {

using workbook::cuda::exp2_ftz;

constexpr float log2_e = 1.4426950408889634f;

/// A modified score.
struct ModifiedScore {
  float score, derivative;
};

/// scale·Q_i·K_j only. scale includes log2(e).
struct Scaled {
  float scale;
  static constexpr bool sync_every_16_queries = false;
  __device__ Scaled for_head(int, int) const { return *this; }
  __device__ ModifiedScore operator()(float qk, float) const { return {qk * scale, 1}; }
};

/// The score modification First, then ALiBi: subtracts slope·|distance|, with slope = 2^(-8(h + 1) / H) for head h of
/// H.
template <class First>
struct WithAlibi {
  First first;
  float slope = 0;
  static constexpr bool sync_every_16_queries = First::sync_every_16_queries;
  __device__ WithAlibi for_head(int head, int heads) const {
    return {first, exp2f(-8 * float(head + 1) / float(heads)) * log2_e};
  }
  __device__ ModifiedScore operator()(float qk, float distance) const {
    const auto [score, derivative] = first(qk, distance);
    return {score - slope * fabsf(distance), derivative};
  }
};

/// cap·tanh(x) with x = scale·Q_i·K_j / cap: scores stay within ±cap. cap includes log2(e) too. tanh(x) =
/// 1 - 2 / (1 + e^2x), and e^2x = exp2(rate·Q_i·K_j). The derivative is 1 - tanh(x)².
struct Softcap {
  float cap, rate;
  static constexpr bool sync_every_16_queries = true;
  __device__ Softcap for_head(int, int) const { return *this; }
  __device__ ModifiedScore operator()(float qk, float) const {
    const float tanh = 1 - __fdividef(2, 1 + exp2_ftz(rate * qk));
    return {cap * tanh, 1 - tanh * tanh};
  }
};

}  // namespace
}  // namespace ch19
