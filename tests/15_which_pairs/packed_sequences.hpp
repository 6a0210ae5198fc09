// Sequences that are packed one after the other know nothing of each other: how the tests of the chapters that have
// them say so.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/15_which_pairs/mask_cases.hpp"
#include "tests/support/forward_stage.hpp"

namespace workbook::test {

inline Input masked(const std::string& kind, const Shape& shape, std::uint64_t seed, const Mask& mask) {
  return {make_input(kind, {shape, mask, 0, seed}), fmt::format("{}, seed {}", kind, seed), kind};
}

inline constexpr const char* sequences_mixed =
    "your result for a packed sequence depends on the other sequences; it must not";

/// Rows [first, first + length) of every tensor, as a problem of its own.
inline Problem cut(Problem whole, std::int64_t first, std::int64_t length) {
  Problem part = whole;
  part.mask.lengths.clear();
  part.shape.Nq = part.shape.Nk = length;
  const auto tensors = part.tensors();
  for (std::size_t n = 0; n < 3; ++n) {
    const Tensor<float>& from = *whole.tensors()[n];
    *tensors[n] = Tensor<float>({from.sizes[0], from.sizes[1], length, from.sizes[3]});
    for (std::int64_t h = 0; h < from.sizes[1]; ++h)
      for (std::int64_t i = 0; i < length; ++i)
        std::copy_n(&from.values[from.index(0, h, first + i, 0)], from.sizes[3], &(*tensors[n])(0, h, i, 0));
  }
  return part;
}

/// Two heads of packed sequences agree with the oracle, and each sequence with a call of its own, to the last bit.
inline void expect_as_alone(const Mask& mask, const std::vector<std::int64_t>& lengths, std::int64_t d,
                            const Tiles& tiles) {
  std::int64_t all = 0;
  for (const std::int64_t length : lengths) all += length;
  const Input given = masked("normal", {1, 2, 2, all, all, d}, 81, packed(mask, lengths));
  const AttentionResult together = expect_right(given, tiles);
  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    const AttentionResult alone = attention(cut(given.problem, first, length), tiles.numbers());
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < length; ++i) {
        const float* const row = &alone.O.values[alone.O.index(0, h, i, 0)];
        expect(std::equal(row, row + d, &together.O.values[together.O.index(0, h, first + i, 0)]),
               fmt::format("row {} of the sequence of {} rows from row {} on differs from that of a call with this "
                           "sequence alone, mask {}",
                           i, length, first, mask.name()),
               sequences_mixed, "sequences-mixed");
      }
    first += length;
  }
}

/// Of three sequences the first and the last become NaN: the second stays what it was.
inline void expect_independent_sequences(const Mask& mask, std::int64_t d, const Tiles& tiles) {
  Input given = masked("normal", {1, 2, 2, 120, 120, d}, 82, packed(mask, {50, 33, 37}));
  const AttentionResult before = attention(given, tiles);
  for (const auto& tensor : given.problem.tensors())
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 120; ++i)
        if (i < 50 || i >= 83) std::fill_n(&(*tensor)(0, h, i, 0), d, std::numeric_limits<float>::quiet_NaN());
  const AttentionResult after = attention(given, tiles);
  for (std::int64_t h = 0; h < 2; ++h)
    for (std::int64_t i = 50; i < 83; ++i)
      for (std::int64_t c = 0; c < d; ++c)
        expect(after.O(0, h, i, c) == before.O(0, h, i, c),
               fmt::format("O of row {} (in the second of three sequences), column {}, is {}, but {} if the other two "
                           "sequences are NaN",
                           i, c, before.O(0, h, i, c), after.O(0, h, i, c)),
               sequences_mixed, "sequences-mixed");
}

}  // namespace workbook::test
