// Chapter 7, loss scaling: one step with a scaled loss, and a dynamic scale.
//
// Source: Micikevicius et al. 2017, "Mixed Precision Training", section 3.2; PyTorch, torch.amp.GradScaler and
// aten/src/ATen/native/cuda/AmpKernels.cu.
// Test it: ./workbook test 7.3
#include "loss_scaler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/cuda/todo.hpp"
#include "formats.hpp"

namespace ch07 {

bool scaled_step(float scale, std::int64_t weight_count, const Backward& backward, const Optimiser& optimiser) {
  // TODO(7.3) Compute the gradients of scale·loss in fp16; unscale them in fp32; if all are finite, call the optimiser
  // (about 10 lines).
  // BEGIN 7.3
  std::vector<std::uint16_t> scaled(weight_count);
  backward(scale, scaled);

  std::vector<float> gradients(weight_count);
  bool finite = true;
  for (std::int64_t i = 0; i < weight_count; ++i) {
    gradients[i] = decode(scaled[i], fp16) / scale;
    finite = finite && std::isfinite(gradients[i]);
  }
  if (finite) optimiser(gradients);
  return finite;
  // END 7.3
}

DynamicScaler::DynamicScaler(const ScalerOptions& options) : options_(options), scale_(float(options.initial)) {
  const auto require = [](bool good, const char* option, double value, const char* allowed) {
    if (!good)
      throw std::invalid_argument(std::string(option) + " = " + std::to_string(value) + ": allowed is " + allowed);
  };
  require(scale_ > 0 && std::isfinite(scale_), "initial", options.initial, "a positive number that fits a float");
  require(options.growth > 1 && std::isfinite(options.growth), "growth", options.growth, "a number above 1");
  require(options.backoff > 0 && options.backoff < 1, "backoff", options.backoff, "a number between 0 and 1");
  require(options.growth_interval >= 1, "growth_interval", double(options.growth_interval), "a whole number from 1 on");
}

void DynamicScaler::update(bool found_non_finite) {
  // TODO(7.4) Skipped step: reduce the scale, reset the count. Good step: increment the count; after growth_interval
  // good steps in a row, increase the scale and reset the count. Keep the scale finite and >= 2^-126 (about 10 lines).
  // BEGIN 7.4
  if (found_non_finite) {
    const float smaller = float(scale_ * options_.backoff);
    if (smaller >= std::numeric_limits<float>::min()) scale_ = smaller;
    good_steps_ = 0;
  } else if (++good_steps_ == options_.growth_interval) {
    const float larger = float(scale_ * options_.growth);
    if (std::isfinite(larger)) scale_ = larger;
    good_steps_ = 0;
  }
  // END 7.4
}

}  // namespace ch07
