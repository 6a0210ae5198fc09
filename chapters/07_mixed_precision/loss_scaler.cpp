// Chapter 7, loss scaling: one step with a scale, and a scale that adapts itself.
//
// Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.2; PyTorch, torch.amp.GradScaler and
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

bool scaled_step(float scale, std::int64_t weights, const Backward& backward, const Optimiser& optimiser) {
  // TODO(7.3) The gradients of scale·loss, in fp16; unscaled, in fp32; all finite? Only then the optimiser (about 10
  // lines).
  // BEGIN 7.3
  WORKBOOK_TODO(7.3);
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
  // TODO(7.4) A bad step: a smaller scale, and counting starts again. A good one: count it; after growth_interval of
  // them in a row a larger scale, and counting starts again. The scale stays finite and at 2^-126 or above (about 10
  // lines).
  // BEGIN 7.4
  WORKBOOK_TODO(7.4);
  // END 7.4
}

}  // namespace ch07
