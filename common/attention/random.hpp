// The book's random numbers: the same on every platform, from a seed.
#pragma once

#include <cstdint>

namespace workbook {

/// SplitMix64 (Steele, Lea and Flood, 2014): a 64-bit counter and a mixer. Whole numbers only, so the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  /// What Random(state()) goes on from: all that there is to keep.
  std::uint64_t state() const { return state_; }

  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform() { return double(bits() >> 11) * 0x1p-53; }
  /// A whole number in [0, below).
  std::int64_t below(std::int64_t below) { return std::int64_t(bits() % std::uint64_t(below)); }
  double sign() { return bits() & 1 ? 1.0 : -1.0; }
  /// Mean 0, variance 1, bell-shaped: the sum of 12 uniform numbers less 6 (Irwin-Hall). Exact sums of multiples of
  /// 2^-21, without log or cos, whose last bit differs between C libraries. Never beyond ±6.
  double normal() {
    std::int64_t sum = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t three = bits();  // three numbers of 21 bits
      sum += std::int64_t((three & 0x1fffff) + (three >> 21 & 0x1fffff) + (three >> 42 & 0x1fffff));
    }
    return double(sum - std::int64_t{6} * 0x1fffff) * 0x1p-21;
  }

 private:
  std::uint64_t state_;
};

}  // namespace workbook
