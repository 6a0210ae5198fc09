// Tests that took too long, once more and alone: beside others' programs an honest answer may be late.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/grading/turns.hpp"
#include "common/judge/verdict.hpp"

namespace workbook::grading {

/// Runs one test, by name; nothing if it did not run.
using RunAgain = std::function<std::optional<judge::Verdict>(const std::string& test)>;

/// Once more, while nothing else is graded, each of the tests that took too long; what it came to then takes the old
/// verdict's place. The first that takes too long again ends it: so would the others, and they cost everyone their
/// time. So does one that had the processor all the time that a call may take: it would not be sooner alone. A program
/// that did not come to its tests' end is not started again.
inline void repeat_slow_tests(std::vector<judge::Verdict>& tests, Turns& turns, const RunAgain& run_again) {
  const auto slow = [](const judge::Verdict& verdict) {
    return verdict.finished && verdict.result == judge::Result::timed_out;
  };
  const auto first = std::ranges::find_if(tests, slow);
  if (first == tests.end() || first->had_its_time) return;
  turns.alone([&] {
    for (judge::Verdict& verdict : tests) {
      if (!slow(verdict)) continue;
      if (verdict.had_its_time) return;
      const std::optional<judge::Verdict> again = run_again(verdict.test);
      if (!again) return;
      verdict = *again;
      if (slow(verdict)) return;
    }
  });
}

}  // namespace workbook::grading
