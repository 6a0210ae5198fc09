// Bounds on the difference between a correct stage and the oracle, per element and for the root mean square, derived
// from the precision, N, d and the magnitudes. The derivation is in notes/numerics.md; nothing is tuned by hand.
#pragma once

#include <string>

#include "common/attention/element_type.hpp"
#include "common/attention/oracle.hpp"

namespace workbook {

/// The roundings of a stage.
struct Precision {
  Element element;    ///< of Q, K, V and O
  double input;       ///< unit roundoff of the element type of Q, K, V (which are given rounded, so it causes no error)
  double accumulate;  ///< unit roundoff of sums and of S, m, l
  double probability;  ///< unit roundoff to which P is rounded before PV; 0 if P stays in `accumulate`
  double output;       ///< unit roundoff of O as stored
  double cut = 0;  ///< truncation by tensor cores when they accumulate, on average and relative to the largest addend:
                   ///< bias instead of random error; 0: none
  double underflow = 0;  ///< largest error from underflow (of P, and of O as stored)
};
Precision float32_precision();   ///< float throughout, as in chapters 1 and 2
Precision float16_precision();   ///< fp16 in and out, P in fp16, fp32 accumulation on tensor cores
Precision bfloat16_precision();  ///< the same with bf16
/// P in e4m3, offset by 2^8, against the row's maximum so far, from operands in e4m3; O in fp16. Tensor cores
/// accumulate e4m3 products with 13 bits of mantissa.
Precision float8_precision();

/// Allowed differences for one tensor: per element, and for the root mean square over all elements. If the expected
/// value is not finite, or is exactly 0 because the row is fully masked, the bound is 0: the result must be equal
/// (including infinities and NaN), and the comparison counts an equal element as an error of 0 in the mean.
struct Bounds {
  Tensor<double> element;  ///< same sizes as the tensor it bounds
  double rms = 0;
  std::string origin;  ///< one line for a message: "float32 rounding of S, P and O, N=200, d=64"
};

/// Bounds for O and the LSE of a stage with `precision`.
Bounds output_bounds(const Forward& oracle, const Problem& problem, const Precision& precision);
Bounds lse_bounds(const Forward& oracle, const Problem& problem, const Precision& precision);

/// Bounds for a backward pass that recomputes P from the LSE and takes O, dO and the LSE as given (backward_oracle with
/// Saved): D = rowsum(dO∘O) kept in `accumulate`, P and dS formed in `accumulate` and rounded to `probability` before
/// the matmuls, the gradients stored as `output`. `oracle` holds the exact gradients.
struct GradientBounds {
  Bounds dQ, dK, dV;
  Bounds D;      ///< (B, H, Nq, 1)
  Bounds dsink;  ///< sink_sizes(); of float, whatever the stage's element is
};
GradientBounds gradient_bounds(const Gradients& oracle, const Problem& problem, const Tensor<double>& dO,
                               const Saved& saved, const Precision& precision);

/// Bounds for the parts of the forward pass that chapters 1 and 2 test separately, all for float32. S = scale·QKᵀ with
/// `d` terms per score, where `sizes` holds scale·Σ_c |Q_ic||K_jc| for each element;
Bounds score_bounds(const Tensor<double>& sizes, std::int64_t d);
/// P = softmax(S) for rows of `keys` scores, from given S (no error in S); `scores` and `P` (1, 1, rows, keys) in
/// float64;
Bounds softmax_bounds(const Tensor<double>& scores, const Tensor<double>& P);
/// the LSE of given rows of scores; `scores` (1, 1, rows, keys), bound (1, 1, rows, 1);
Bounds row_lse_bounds(const Tensor<double>& scores);
/// O = PV from given P, V; `sizes` = Σ_j |P_ij||V_jc|, `terms` = number of keys.
Bounds product_bounds(const Tensor<double>& sizes, std::int64_t terms);

}  // namespace workbook
