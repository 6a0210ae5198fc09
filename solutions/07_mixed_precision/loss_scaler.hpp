// Chapter 7, loss scaling: gradients that would underflow in fp16 are computed 2^16 times as large.
//
// The gradient of scale·loss is scale times the gradient of the loss, through the whole network. So one multiplication
// at the start of the backward pass moves every gradient into fp16's range, and one division at its end, in fp32,
// restores it. Gradients that are now too large become infinite, which is easy to detect: the step is skipped, and the
// scale is reduced.
//
// Source: Micikevicius et al. 2017, "Mixed Precision Training", section 3.2; PyTorch, torch.amp.GradScaler.
// Test it: ./workbook test 7.3
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace ch07 {

/// The backward pass: writes the gradients of scale·loss with respect to the weights, as fp16 codes.
using Backward = std::function<void(float scale, std::span<std::uint16_t> gradients)>;
/// The optimiser: receives the gradients of the loss in fp32 and updates the weights.
using Optimiser = std::function<void(std::span<const float> gradients)>;

/// Exercise 7.3. One training step of weight_count weights with the given scale: the backward pass, unscaling into
/// fp32, and the optimiser. If any unscaled gradient is not finite, the step is skipped: the optimiser is not called.
/// Returns whether it was called.
bool scaled_step(float scale, std::int64_t weight_count, const Backward& backward, const Optimiser& optimiser);

/// The parameters of a dynamic scale. The defaults are GradScaler's.
struct ScalerOptions {
  double initial = 65536;               ///< 2^16; a positive number that fits a float
  double growth = 2;                    ///< above 1
  double backoff = 0.5;                 ///< between 0 and 1
  std::int64_t growth_interval = 2000;  ///< good steps in a row after which the scale grows; at least 1
};

/// A scale that searches for the largest value that does not overflow.
class DynamicScaler {
 public:
  /// Throws std::invalid_argument, naming the option, if one is outside the range that ScalerOptions gives.
  explicit DynamicScaler(const ScalerOptions& options = {});

  /// Exercise 7.4. Updates the scale after every step, skipped or not, as torch.amp.GradScaler does, except at the
  /// lower limit. GradScaler halves the scale until it is 0, and then no step is ever taken again. Here a scale that
  /// would fall below 2^-126, the smallest normal float, does not change, so its inverse remains finite. A scale that
  /// would become infinite does not change either, as in GradScaler.
  void update(bool found_non_finite);

  float scale() const { return scale_; }
  /// Good steps since the last change of the scale, the last skipped step, or growth_interval good steps in a row.
  std::int64_t good_steps() const { return good_steps_; }

 private:
  ScalerOptions options_;
  float scale_;
  std::int64_t good_steps_ = 0;
};

}  // namespace ch07
