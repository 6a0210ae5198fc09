// The loss scale of a training run, static or dynamic: the given version of what the reader builds in chapter 7.
#pragma once

#include <cstdint>
#include <span>

namespace workbook::training {

/// Options of a dynamic scale. The defaults are those of torch.amp.GradScaler.
struct ScalerOptions {
  double initial = 65536;
  double growth = 2;
  double backoff = 0.5;
  std::int64_t growth_interval = 2000;  ///< consecutive good steps
  bool operator==(const ScalerOptions&) const = default;
};
/// InputError naming the invalid option. Required: initial positive and within float, growth > 1, 0 < backoff < 1,
/// growth_interval >= 1.
void check(const ScalerOptions& options);

struct ScalerState {
  float scale = 1;
  std::int64_t good_steps = 0;  ///< consecutive good steps since the last change of the scale or the last skipped step
  bool operator==(const ScalerState&) const = default;
};

/// The state after a step. GradScaler's rules (PyTorch, aten/src/ATen/native/cuda/AmpKernels.cu): a bad step, with any
/// non-finite gradient, multiplies the scale by backoff and resets the counter; growth_interval consecutive good steps
/// multiply it by growth, unless the result is infinite, and reset the counter. One deviation: GradScaler lets the
/// scale fall to 0; here the scale does not fall below 2^-126.
ScalerState updated(ScalerState state, const ScalerOptions& options, bool found_non_finite);

/// Multiplies gradients (n) by 1/scale in place. Returns whether all of them are finite.
bool unscale(std::span<float> gradients, float scale);

}  // namespace workbook::training
