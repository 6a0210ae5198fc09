// The book's random numbers: from a seed, and identical on every platform.
#pragma once

#include <cstdint>

namespace workbook {

/// SplitMix64 (Steele, Lea and Flood, 2014): a 64-bit counter and a mixer. It uses only integers and is therefore
/// identical on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  /// The complete state, from which Random(state()) continues.
  std::uint64_t state() const { return state_; }

  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  /// Uniform in [0, 1), a multiple of 2^-53.
  double uniform() { return double(bits() >> 11) * 0x1p-53; }
  /// An integer in [0, below).
  std::int64_t below(std::int64_t below) { return std::int64_t(bits() % std::uint64_t(below)); }
  double sign() { return bits() & 1 ? 1.0 : -1.0; }
  /// Approximately normal with mean 0 and variance 1: the sum of 12 uniform numbers minus 6 (Irwin-Hall), within ±6.
  /// The sums of multiples of 2^-21 are exact. log and cos are avoided, since their last bit differs between C
  /// libraries.
  double normal() {
    std::int64_t sum = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t three = bits();  // three 21-bit integers
      sum += std::int64_t((three & 0x1fffff) + (three >> 21 & 0x1fffff) + (three >> 42 & 0x1fffff));
    }
    return double(sum - std::int64_t{6} * 0x1fffff) * 0x1p-21;
  }

 private:
  std::uint64_t state_;
};

}  // namespace workbook
