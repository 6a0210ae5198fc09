// The float64 oracle: attention forward and backward as the formulas say it, one row at a time, no tiles, no tricks.
// Everything else in the book is measured against it. Written to be read in one sitting.
#pragma once

#include "common/attention/problem.hpp"

namespace workbook {

/// The forward pass in float64, and the magnitudes that the error bounds need.
struct Forward {
  Tensor<double> O;  ///< (B, H, Nq, d); rows without a visible key are 0
  /// (B, H, Nq, 1), natural logarithm over scaled scores and the sink; -inf for rows with neither
  Tensor<double> lse;

  // Magnitudes, see notes/numerics.md.
  Tensor<double> score_size;    ///< (B, H, Nq, 1): max over visible keys j of scale·Σ_c |Q_ic||K_jc|
  Tensor<double> score_spread;  ///< (B, H, Nq, 1): max_j - min_j of the scaled scores (visible keys), at least |max|
  Tensor<double> O_size;        ///< (B, H, Nq, d): Σ_j P_ij |V_jc|
  Tensor<double> O_quadratic;   ///< (B, H, Nq, d): sqrt(Σ_j P_ij² V_jc²), how independent errors of P add up
  // The same two around O: an error of a score moves P_ij and l together, so only V_jc − O_ic counts.
  Tensor<double> O_spread;            ///< (B, H, Nq, d): Σ_j P_ij |V_jc − O_ic|
  Tensor<double> O_spread_quadratic;  ///< (B, H, Nq, d): sqrt(Σ_j P_ij² (V_jc − O_ic)²)
  Tensor<double> P_quadratic;         ///< (B, H, Nq, 1): sqrt(Σ_j P_ij²)
  /// (B, H, Nq, 1), 0 unless Q and K are rotated: max_j scale·sqrt(Σ_c Q_ic² K_jc²), how roundings of them add up
  Tensor<double> rotation;
};

/// Forward pass (FlashAttention, section 2.2, in float64): S = scale·QKᵀ as the mask changes it, over the keys that it
/// lets a query see, of Q and K that it rotates; P is dropped where it says so; H / Hkv heads of Q share one of K and
/// V. Uses all cores, or as many threads as given; the result does not depend on how many. S and P are never stored:
/// O(Nk) memory a thread. Any d. InputError when a tensor does not have the sizes that the shape says.
Forward forward_oracle(const Problem& problem, unsigned threads = 0);

/// The gradients of a scalar loss for a given dO.
struct Gradients {
  Tensor<double> dQ, dK, dV;
  Tensor<double> dsink;  ///< sink_sizes(); empty where the mask has no sinks
};
/// One number for each head.
inline std::array<std::int64_t, 4> sink_sizes(const Setting& setting) {
  return {1, setting.shape.H, 1, 1};
}

/// Backward pass: P from the LSE, dP = dO·Vᵀ, D = rowsum(dO∘O), dS = P∘(dP − D) times the derivative of a changed
/// score, dQ = scale·dS·K, dK = scale·dSᵀ·Q, dV = Pᵀ·dO (FlashAttention-2, section 3.1.2). A sink is a key whose value
/// is 0, so that its dP is 0: dsink = −Σ_i exp(sink − LSE_i)·D_i over the rows of its head. dO: (B, H, Nq, d). A row
/// without a visible key has P = 0: it adds nothing to dK and dV, and its dQ is 0.
Gradients backward_oracle(const Problem& problem, const Tensor<double>& dO, unsigned threads = 0);

/// What a recomputing backward pass is given beside Q, K, V and dO, rounded as it is stored.
struct Saved {
  Tensor<double> O;    ///< (B, H, Nq, d)
  Tensor<double> lse;  ///< (B, H, Nq, 1); -inf in rows without a visible key
};

/// The same from the O and the LSE of the forward pass, taken as exact: P = exp(S − LSE), D = rowsum(dO∘O). Compared
/// with this, a kernel does not answer for the rounding of what it is given: D of an O rounded to fp16 is off by as
/// much as D rounded to fp16.
Gradients backward_oracle(const Problem& problem, const Tensor<double>& dO, const Saved& saved, unsigned threads = 0);

}  // namespace workbook
