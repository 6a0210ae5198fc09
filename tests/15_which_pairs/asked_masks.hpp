// Masks as the tests of chapter 15 ask for them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/attention/mask.hpp"

namespace workbook::test {

inline Mask changed(Mask mask, float softcap, bool alibi) {
  mask.softcap = softcap, mask.alibi = alibi;
  return mask;
}
inline Mask with_sink(Mask mask, std::int64_t heads, float first = 0.5f) {
  for (std::int64_t h = 0; h < heads; ++h) mask.sink.push_back(first + 1.5f * float(h));
  return mask;
}
inline Mask packed(Mask mask, std::vector<std::int64_t> lengths) {
  mask.lengths = std::move(lengths);
  return mask;
}

struct Window {
  std::int64_t Nq, Nk, left, right;
  std::int64_t first(std::int64_t query) const { return std::max<std::int64_t>(0, query + Nk - Nq - left); }
  std::int64_t last(std::int64_t query) const { return std::min(Nk, query + Nk - Nq + right + 1); }
  bool sees(std::int64_t query, std::int64_t key) const { return first(query) <= key && key < last(query); }
  std::string text() const { return fmt::format("Nq={}, Nk={}, left={}, right={}", Nq, Nk, left, right); }
};
inline constexpr std::int64_t no_end = 1000;  // more keys than there are: no end on that side
inline constexpr Window windows[] = {
    {70, 70, no_end, no_end}, {70, 100, no_end, 0}, {100, 70, no_end, 0}, {130, 130, 40, 0}, {130, 170, 40, 9},
    {170, 130, 33, 0},        {97, 97, 0, 0},       {97, 129, 64, 31},    {64, 200, 31, 32}, {33, 65, 0, no_end}};

}  // namespace workbook::test
