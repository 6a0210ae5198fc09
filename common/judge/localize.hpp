// Localizes the error of one exercise: draws one conclusion from all of its verdicts. Uses only data (results, causes,
// reports and observations), never the text of a message.
#pragma once

#include <string>
#include <vector>

#include "common/judge/verdict.hpp"

namespace workbook::judge {

struct Conclusion {
  std::vector<Cause> causes;  ///< without repetition; the cause that explains most failed tests first; empty: unknown
  bool may_follow = false;    ///< the reports that show the first cause may follow from the wrong values of the first
                              ///< failed test, which have no known cause
  std::vector<std::string> facts;  ///< sentences that narrow the search, the most informative first; at most kMostFacts
};
inline constexpr std::size_t kMostFacts = 4;

/// `of_one_exercise`: all verdicts of one exercise on one backend. Passed tests are included because they help to
/// localize the error. Empty if no test failed.
Conclusion conclude(const std::vector<const Verdict*>& of_one_exercise);

}  // namespace workbook::judge
