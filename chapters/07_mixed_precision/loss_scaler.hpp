// Chapter 7, loss scaling: gradients that would be lost in fp16 are computed 2^16 times as large.
//
// The gradient of scale·loss is scale times the gradient of the loss, through the whole network. So one multiplication
// at the start of the backward pass lifts every gradient out of the range where fp16 has few bits or none, and one
// division at its end, in fp32, brings it back. What is too large now becomes infinite, which is easy to see: such a
// step is skipped and the scale made smaller.
//
// Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2; PyTorch, torch.amp.GradScaler.
// Test it: ./workbook test 7.3
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace ch07 {

/// The backward pass: writes the gradients of scale·loss with respect to the weights, as fp16 codes.
using Backward = std::function<void(float scale, std::span<std::uint16_t> gradients)>;
/// The optimiser: takes the gradients of the loss in fp32 and changes the weights.
using Optimiser = std::function<void(std::span<const float> gradients)>;

/// Exercise 7.3. One training step of `weights` weights with a given scale: backward pass, unscaling into fp32, and the
/// optimiser, unless some gradient is not finite: then the step is skipped, and nothing changes. Returns whether it was
/// taken.
bool scaled_step(float scale, std::int64_t weights, const Backward& backward, const Optimiser& optimiser);

/// How a dynamic scale moves. The defaults are GradScaler's.
struct ScalerOptions {
  double initial = 65536;               ///< 2^16; a positive number that fits a float
  double growth = 2;                    ///< above 1
  double backoff = 0.5;                 ///< between 0 and 1
  std::int64_t growth_interval = 2000;  ///< good steps in a row after which the scale grows; at least 1
};

/// A scale that looks for the largest value that does not overflow.
class DynamicScaler {
 public:
  /// std::invalid_argument, naming the option, if one is outside what ScalerOptions says.
  explicit DynamicScaler(const ScalerOptions& options = {});

  /// Exercise 7.4. After every step, skipped or not: how the scale moves. It follows torch.amp.GradScaler, but for the
  /// lower end. GradScaler halves the scale until it is 0, and then no step is ever taken again; here a scale that
  /// would fall below 2^-126, the smallest normal float, whose inverse is still finite, stays where it is. The upper
  /// end is GradScaler's: a scale that would become infinite stays where it is.
  void update(bool found_non_finite);

  float scale() const { return scale_; }
  /// Good steps in a row since the scale last moved or a step was last skipped.
  std::int64_t good_steps() const { return good_steps_; }

 private:
  ScalerOptions options_;
  float scale_;
  std::int64_t good_steps_ = 0;
};

}  // namespace ch07
