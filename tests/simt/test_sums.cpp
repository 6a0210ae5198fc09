// How tensor cores accumulate e4m3 dot products: by hand, and against a model in double. sums.cu compares them with a
// GPU.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "common/simt/e4m3.hpp"
#include "common/simt/tensor_math.hpp"
#include "tests/simt/e4m3_sums.hpp"

namespace {

constexpr int kTerms = 32;

/// c and the terms x y of pairs; all other terms are 0.
float added(float c, const std::vector<std::pair<float, float>>& pairs) {
  float a[8 * kTerms] = {}, b[kTerms * 8] = {}, sums[64] = {c};
  for (std::size_t k = 0; k < pairs.size(); ++k) a[k] = pairs[k].first, b[8 * k] = pairs[k].second;
  simt::multiply_e4m3(8, 8, a, b, sums);
  for (int i = 1; i < 64; ++i) CHECK(sums[i] == 0);
  return sums[0];
}

/// x truncated towards zero to a multiple of `step`, a power of two.
double cut(double x, double step) {
  return std::trunc(x / step) * step;
}
int exponent_of(float e4m3) {
  return std::max(std::ilogb(e4m3), -6);
}
/// The rule that tensor_math.hpp states, in double.
float modelled(float c, const std::vector<float>& a, const std::vector<float>& b) {
  int top = c == 0 ? -100 : std::ilogb(c);
  for (std::size_t k = 0; k < a.size(); ++k)
    if (a[k] != 0 && b[k] != 0) top = std::max(top, exponent_of(a[k]) + exponent_of(b[k]));
  double sum = cut(c, std::ldexp(1, top - 13));
  for (std::size_t k = 0; k < a.size(); ++k) sum += cut(double(a[k]) * b[k], std::ldexp(1, top - 13));
  return sum == 0 ? 0 : float(cut(sum, std::ldexp(1, std::ilogb(sum) - 13)));
}

}  // namespace

TEST_CASE("e4m3 products are truncated 13 bits below the largest addend") {
  const auto small = [](int power) { return std::pair{0x1p-6f, std::ldexp(1.0f, power + 6)}; };
  CHECK(added(0, {{1, 1}, small(-13)}) == 1 + 0x1p-13f);
  CHECK(added(0, {{1, 1}, small(-14)}) == 1);
  CHECK(added(0, {{1, 1}, small(-14), small(-14)}) == 1);  // each is truncated separately
  CHECK(added(1, {small(-13), small(-13)}) == 1 + 0x1p-12f);
  CHECK(added(1 + 0x1p-13f, {}) == 1 + 0x1p-13f);
  CHECK(added(1 + 0x1p-14f, {}) == 1);  // the sum so far is truncated too
  CHECK(added(-0x1p-13f, {{1, 1}}) == 1 - 0x1p-13f);
  CHECK(added(-0x1p-14f, {{1, 1}}) == 1);  // towards zero
  // 1.875 · 1.875 = 3.515625: its factors put its leading bit at 1, and the sum is truncated 13 bits below 2.
  CHECK(added(0, {{1.875f, 1.875f}, small(-12)}) == 3.515625f + 0x1p-12f);
  CHECK(added(0, {{1.875f, 1.875f}, small(-13)}) == 3.515625f);
  // Two subnormal factors: their leading bits are taken to be at 2^-6.
  CHECK(added(0x1p-26f, {{0x1p-9f, 0x1p-9f}}) == 0x1p-18f);
}

TEST_CASE("infinite sums and NaN are preserved") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(added(infinity, {{1, 1}}) == infinity);
  CHECK(std::isnan(added(nan, {{1, 1}})));
  float a[8 * kTerms] = {nan, 1}, b[kTerms * 8] = {1}, sums[64] = {};
  simt::multiply_e4m3(8, 8, a, b, sums);
  CHECK(std::isnan(sums[0]));
}

TEST_CASE("sums of e4m3 are those of a model in double, bit for bit") {
  for (int kind = 0; kind < simt::sums::kinds; ++kind) {
    simt::sums::Numbers numbers(kind);
    for (int round = 0; round < 50; ++round) {
      std::vector<float> a(8 * kTerms), b(kTerms * 16), c(8 * 16);
      for (float& x : a) x = simt::e4m3_to_float(numbers.code());
      for (float& x : b) x = simt::e4m3_to_float(numbers.code());
      for (float& x : c) x = numbers.sum();
      std::vector<float> sums = c;
      simt::multiply_e4m3(8, 16, a.data(), b.data(), sums.data());
      int different = 0;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::vector<float> row(a.begin() + std::ptrdiff_t(i / 16) * kTerms,
                                     a.begin() + std::ptrdiff_t(i / 16 + 1) * kTerms);
        std::vector<float> column;
        for (std::size_t k = 0; k < kTerms; ++k) column.push_back(b[k * 16 + i % 16]);
        different += sums[i] != modelled(c[i], row, column);
      }
      CHECK(different == 0);
    }
  }
}
