// Gradients against central differences, in double.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "common/attention/inputs.hpp"

namespace workbook::training {

inline std::vector<double> normal_doubles(std::size_t count, std::uint64_t seed, double size = 1) {
  const std::vector<float> values = normal_values(count, seed);
  std::vector<double> result(values.begin(), values.end());
  for (double& value : result) value *= size;
  return result;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// `gradient` is that of loss() with respect to `x`, which loss() reads: every element against (loss(x + h) - loss(x -
/// h)) / 2h, within 1e-7 of the largest element. That is far above what differences with h = 1e-5 lose in double
/// (h²·third derivative, and rounding/h), and far below any omitted term.
inline void expect_gradient(const std::string& what, std::vector<double>& x, const std::vector<double>& gradient,
                            const std::function<double()>& loss) {
  REQUIRE(gradient.size() == x.size());
  double largest = 0;
  for (const double g : gradient) largest = std::max(largest, std::abs(g));
  REQUIRE(largest > 0);
  constexpr double h = 1e-5;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + h;
    const double above = loss();
    x[i] = kept - h;
    const double below = loss();
    x[i] = kept;
    const double expected = (above - below) / (2 * h);
    if (!(std::abs(gradient[i] - expected) <= 1e-7 * largest + 1e-10)) {
      FAIL(what << ": element " << i << " is " << gradient[i] << ", differences say " << expected);
    }
  }
}

}  // namespace workbook::training
