// The known mistakes of chapter 2 that other files name.
#pragma once

#include <span>
#include <vector>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test::ch02 {

/// The running state of a row x of scores, taken in blocks of `block`: m and l as a (1, 1, 1, 2) tensor.
std::vector<judge::Mistake> state_mistakes(std::span<const float> x, judge::Index block);
/// Merging two partial states: m[2], l[2] and the undivided O (2, d) into m, l, O: (1, 1, 1, 2 + d).
std::vector<judge::Mistake> merge_mistakes(std::span<const float> m, std::span<const float> l,
                                           std::span<const float> O);

}  // namespace workbook::test::ch02
