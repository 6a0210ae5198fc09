// The float64 oracle: attention forward and backward computed directly from the formulas, one row at a time, without
// tiles. All other code in the book is compared with it.
#pragma once

#include "common/attention/problem.hpp"

namespace workbook {

/// The results of the forward pass in float64, and the magnitudes for the error bounds.
struct Forward {
  Tensor<double> O;  ///< (B, H, Nq, d); rows without a visible key are 0
  /// (B, H, Nq, 1), natural logarithm over scaled scores and the sink; -inf for rows with neither
  Tensor<double> lse;

  // Magnitudes, see notes/numerics.md.
  Tensor<double> score_size;    ///< (B, H, Nq, 1): max over visible keys j of scale·Σ_c |Q_ic||K_jc|
  Tensor<double> score_spread;  ///< (B, H, Nq, 1): max_j - min_j of the scaled scores (visible keys), at least |max|
  Tensor<double> O_size;        ///< (B, H, Nq, d): Σ_j P_ij |V_jc|
  Tensor<double> O_quadratic;   ///< (B, H, Nq, d): sqrt(Σ_j P_ij² V_jc²), the effect of independent errors of P
  // The same two relative to O: an error of a score changes P_ij and l together, so only V_jc − O_ic matters.
  Tensor<double> O_spread;            ///< (B, H, Nq, d): Σ_j P_ij |V_jc − O_ic|
  Tensor<double> O_spread_quadratic;  ///< (B, H, Nq, d): sqrt(Σ_j P_ij² (V_jc − O_ic)²)
  Tensor<double> P_quadratic;         ///< (B, H, Nq, 1): sqrt(Σ_j P_ij²)
  /// (B, H, Nq, 1), 0 unless Q and K are rotated: max_j scale·sqrt(Σ_c Q_ic² K_jc²), the effect of their roundings
  Tensor<double> rotation;
};

/// Forward pass (FlashAttention, section 2.2, in float64): S = scale·QKᵀ with the mask's score modification, over the
/// unmasked keys, with Q and K rotated and P dropped if the mask requires it. H / Hkv query heads share a K/V head.
/// Uses all cores, or the given number of threads, on which the result does not depend. S and P are never stored: O(Nk)
/// memory per thread. Any d. InputError if the sizes of a tensor do not match the shape.
Forward forward_oracle(const Problem& problem, unsigned threads = 0);

/// The gradients of a scalar loss for a given dO.
struct Gradients {
  Tensor<double> dQ, dK, dV;
  Tensor<double> dsink;  ///< sink_sizes(); empty where the mask has no sinks
};
/// One number per head.
inline std::array<std::int64_t, 4> sink_sizes(const Setting& setting) {
  return {1, setting.shape.H, 1, 1};
}

/// Backward pass: P from the LSE, dP = dO·Vᵀ, D = rowsum(dO∘O), dS = P∘(dP − D) times the derivative of the score
/// modification, dQ = scale·dS·K, dK = scale·dSᵀ·Q, dV = Pᵀ·dO (FlashAttention-2, section 3.1.2). A sink is a key with
/// V = 0, hence dP = 0: dsink = −Σ_i exp(sink − LSE_i)·D_i over the rows of its head. dO: (B, H, Nq, d). A fully masked
/// row has P = 0: it contributes nothing to dK and dV, and its dQ is 0.
Gradients backward_oracle(const Problem& problem, const Tensor<double>& dO, unsigned threads = 0);

/// The inputs of a recomputing backward pass in addition to Q, K, V and dO, rounded as stored.
struct Saved {
  Tensor<double> O;    ///< (B, H, Nq, d)
  Tensor<double> lse;  ///< (B, H, Nq, 1); -inf in rows without a visible key
};

/// The same from the O and the LSE of the forward pass, taken as exact: P = exp(S − LSE), D = rowsum(dO∘O). With this
/// reference, the rounding of a kernel's inputs is not attributed to the kernel: D computed from an O rounded to fp16
/// has an error as large as that of rounding D to fp16.
Gradients backward_oracle(const Problem& problem, const Tensor<double>& dO, const Saved& saved, unsigned threads = 0);

}  // namespace workbook
