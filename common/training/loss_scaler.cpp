#include "common/training/loss_scaler.hpp"

#include <cmath>
#include <limits>

#include "common/attention/error.hpp"

namespace workbook::training {

void check(const ScalerOptions& options) {
  if (!(float(options.initial) > 0) || !std::isfinite(float(options.initial)))
    fail_input("initial scale = {}: allowed: positive numbers that fit in a float", options.initial);
  if (!(options.growth > 1) || !std::isfinite(options.growth))
    fail_input("growth = {}: allowed: numbers above 1", options.growth);
  if (!(options.backoff > 0 && options.backoff < 1))
    fail_input("backoff = {}: allowed: numbers between 0 and 1", options.backoff);
  if (options.growth_interval < 1)
    fail_input("growth interval = {}: allowed: whole numbers from 1 on", options.growth_interval);
}

ScalerState updated(ScalerState state, const ScalerOptions& options, bool found_non_finite) {
  if (found_non_finite) {
    const float smaller = float(state.scale * options.backoff);
    return {smaller >= std::numeric_limits<float>::min() ? smaller : state.scale, 0};
  }
  if (state.good_steps + 1 < options.growth_interval) return {state.scale, state.good_steps + 1};
  const float larger = float(state.scale * options.growth);
  return {std::isfinite(larger) ? larger : state.scale, 0};
}

bool unscale(std::span<float> gradients, float scale) {
  const float inverse = 1 / scale;
  bool finite = true;
  for (float& gradient : gradients) {
    gradient *= inverse;
    finite = finite && std::isfinite(gradient);
  }
  return finite;
}

}  // namespace workbook::training
