// The loss scale of a training run, static or dynamic. What the reader builds in chapter 7, given.
#pragma once

#include <cstdint>
#include <span>

namespace workbook::training {

/// How a dynamic scale moves. The defaults are those of torch.amp.GradScaler.
struct ScalerOptions {
  double initial = 65536;
  double growth = 2;
  double backoff = 0.5;
  std::int64_t growth_interval = 2000;  ///< good steps in a row
  bool operator==(const ScalerOptions&) const = default;
};
/// InputError naming the option that is outside what makes sense: initial positive and within float, growth > 1,
/// 0 < backoff < 1, growth_interval >= 1.
void check(const ScalerOptions& options);

struct ScalerState {
  float scale = 1;
  std::int64_t good_steps = 0;  ///< in a row, since the scale last moved or a step was last skipped
  bool operator==(const ScalerState&) const = default;
};

/// The state after a step. GradScaler's rules (PyTorch, aten/src/ATen/native/cuda/AmpKernels.cu): a bad step, with any
/// gradient that is not finite, multiplies the scale by backoff and starts counting again; growth_interval good ones in
/// a row multiply it by growth, unless that is infinite, and start counting again. One deviation: GradScaler lets the
/// scale fall to 0, this one stays where it is if it would fall below 2^-126.
ScalerState updated(ScalerState state, const ScalerOptions& options, bool found_non_finite);

/// gradients (n) times 1/scale, in place. Whether all of them are finite.
bool unscale(std::span<float> gradients, float scale);

}  // namespace workbook::training
