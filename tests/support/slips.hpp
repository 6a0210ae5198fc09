// What an exercise's part is taken to give when it is called alone: numbers that a test knows, and known ways to other
// ones.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/subject.hpp"

namespace workbook::test {

/// What an exercise's part may give in place of what is right: known slips, of which those stay that have given the
/// same numbers in all calls so far.
template <class Slip>
struct Slips {
  std::vector<Slip> fitting;
  std::string wrong = {};  ///< the first number that is, for the message

  /// of(slip): whether it gives what this call has given.
  template <class Of>
  void keep(const Of& of) {
    std::erase_if(fitting, [&](const Slip& slip) { return !of(slip); });
  }
  /// Fails if anything was wrong. Otherwise, where no slip fits: what is said then.
  void expect_none(const std::string& sentence = "", const std::string& id = "unknown") const {
    const bool known = !fitting.empty();
    expect(wrong.empty(), wrong, known ? fitting[0].sentence : sentence, known ? fitting[0].id : id);
  }
};

/// Numbers from first to last - 1; all that hold none are the same.
struct Numbered {
  std::int64_t first, last;
  friend bool operator==(const Numbered& a, const Numbered& b) {
    return (a.first >= a.last && b.first >= b.last) || (a.first == b.first && a.last == b.last);
  }
  bool contains(std::int64_t n) const { return first <= n && n < last; }
  std::string text() const { return first < last ? fmt::format("{} to {}", first, last - 1) : "none"; }
};

}  // namespace workbook::test
