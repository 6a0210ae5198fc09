// Pairs of lengths that tests of whole chapters go through: one, those around the rows of a warp and of a tile, and
// some that are many tiles long.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/attention/shape.hpp"

namespace workbook::test {

inline constexpr std::int64_t kRaggedLengths[] = {1, 2, 3, 31, 33, 63, 65, 127, 129, 1000, 1023, 4097};

/// Calls work(shape, causal, number) for one in `one_in` of all pairs Nq, Nk of these lengths, with the causal mask and
/// without, d = 32, 64 and 128, that have a product Nq·Nk·d of at most `most`. one_in: a number without the factors 2
/// and 3, which the sizes of these sets have: so that all combinations occur. std::invalid_argument otherwise.
template <class Work>
void for_ragged(std::uint64_t one_in, std::int64_t most, const Work& work) {
  if (one_in % 2 == 0 || one_in % 3 == 0)
    throw std::invalid_argument("one_in = " + std::to_string(one_in) + ": allowed: a number without factors 2 and 3");
  std::uint64_t number = 0;
  for (const std::int64_t Nq : kRaggedLengths) {
    for (const std::int64_t Nk : kRaggedLengths) {
      for (const bool causal : {false, true}) {
        for (const std::int64_t d : {32, 64, 128}) {
          ++number;
          if (number % one_in == 0 && Nq * Nk * d <= most) work(Shape{1, 1, 1, Nq, Nk, d}, causal, number);
        }
      }
    }
  }
}
inline constexpr std::int64_t kAnyProduct = 1'000'000'000'000;

}  // namespace workbook::test
