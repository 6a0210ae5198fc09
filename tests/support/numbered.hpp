// Ranges of numbers, as exercises' parts that are called alone give them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace workbook::test {

/// Numbers from first to last - 1; all that hold none are the same.
struct Numbered {
  std::int64_t first, last;
  friend bool operator==(const Numbered& a, const Numbered& b) {
    return (a.first >= a.last && b.first >= b.last) || (a.first == b.first && a.last == b.last);
  }
  std::string text() const { return first < last ? fmt::format("{} to {}", first, last - 1) : "none"; }
};

}  // namespace workbook::test
