// Shared by the tests of the oracle and of the bounds: tensors, an error as a share of its bound, and roundings and
// sums.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

#include "common/attention/half.hpp"
#include "common/attention/inputs.hpp"
#include "common/attention/tolerance.hpp"

namespace workbook::test {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// Normally distributed numbers, the same for the same seed.
inline Tensor<double> normal_tensor(const std::array<std::int64_t, 4>& sizes, std::uint64_t seed) {
  Tensor<double> tensor(sizes);
  const std::vector<float> values = normal_values(tensor.values.size(), seed);
  tensor.values.assign(values.begin(), values.end());
  return tensor;
}

/// An error as a share of its bound; at most 1 passes.
struct Ratio {
  double element = 0, rms = 0;
  void include(const Ratio& other) {
    element = std::max(element, other.element);
    rms = std::max(rms, other.rms);
  }
  double worst() const { return std::max(element, rms); }
};

inline Ratio compare(const std::vector<float>& actual, const Tensor<double>& expected, const Bounds& bounds) {
  if (actual.size() != expected.values.size() || bounds.element.sizes != expected.sizes)
    throw std::logic_error("sizes differ");
  Ratio ratio;
  double squares = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (double(actual[i]) == expected.values[i]) continue;
    const double error = std::abs(actual[i] - expected.values[i]), bound = bounds.element.values[i];
    if (!(error <= bound) && !(bound > 0)) return {infinity, infinity};
    squares += error * error;
    ratio.element = std::isfinite(error) ? std::max(ratio.element, error / bound) : infinity;
  }
  if (squares > 0) ratio.rms = std::sqrt(squares / double(actual.size())) / bounds.rms;
  return ratio;
}

using Rounding = std::function<float(float)>;
inline float keep(float x) {
  return x;
}
inline float to_fp16(float x) {
  return half_to_float(float_to_half(x));
}
inline float to_bf16(float x) {
  return bfloat16_to_float(float_to_bfloat16(x));
}

/// A sum as tensor cores compute it: `together` products and the running sum at a time, each truncated (not rounded) to
/// a number of mantissa bits below the largest of them, and the result truncated again.
inline float cut_dot(const std::vector<float>& a, const std::vector<float>& b, std::size_t together, int bits) {
  double sum = 0;
  for (std::size_t first = 0; first < a.size(); first += together) {
    std::vector<double> addends{sum};
    double largest = std::abs(sum);
    for (std::size_t k = first; k < std::min(first + together, a.size()); ++k) {
      addends.push_back(double(a[k]) * double(b[k]));
      largest = std::max(largest, std::abs(addends.back()));
    }
    if (largest == 0) continue;
    const double ulp = std::ldexp(1.0, std::ilogb(largest) - bits);
    sum = 0;
    for (const double addend : addends) sum += std::trunc(addend / ulp) * ulp;
    if (sum != 0) {
      const double sum_ulp = std::ldexp(1.0, std::ilogb(sum) - bits);
      sum = std::trunc(sum / sum_ulp) * sum_ulp;
    }
  }
  return float(sum);
}
/// As the first tensor cores with 16-bit operands, and Hopper's with 8-bit operands.
inline float tensor_core_dot(const std::vector<float>& a, const std::vector<float>& b) {
  return cut_dot(a, b, 4, 23);
}
inline float float8_dot(const std::vector<float>& a, const std::vector<float>& b) {
  return cut_dot(a, b, 32, 13);
}

}  // namespace workbook::test
