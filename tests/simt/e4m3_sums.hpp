// Inputs whose sums show how e4m3 dot products are accumulated: for the simulator's test and for the comparison with a
// GPU.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>

namespace simt::sums {

constexpr int kinds = 4;
/// Codes and sums by kind: any codes (0); codes near 1 (1); subnormal and small codes (2); positive codes only (3). The
/// sums have many magnitudes, or are 0 (kind 3).
class Numbers {
 public:
  explicit Numbers(int kind) : kind_(kind), random_(std::uint32_t(kind)) {}
  std::uint8_t code() {
    const auto sign = std::uint8_t(kind_ == 3 ? 0 : below(2) << 7);
    const int from = kind_ == 1 ? 0x28 : 0, to = kind_ == 1 ? 0x48 : kind_ == 2 ? 0x18 : 0x7f;
    return std::uint8_t(sign | (from + below(to - from)));
  }
  float sum() {
    if (kind_ == 3) return 0;
    return std::ldexp(float(below(1 << 24) - (1 << 23)), below(30) - 35);
  }

 private:
  int below(int end) { return int(random_() % std::uint32_t(end)); }
  int kind_;
  std::mt19937 random_;
};

}  // namespace simt::sums
