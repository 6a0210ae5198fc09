// One conclusion for one exercise: what all of its verdicts together say about what is wrong. Knows data only: results,
// causes, reports and trials; never a sentence of a message.
#pragma once

#include <string>
#include <vector>

#include "common/judge/verdict.hpp"

namespace workbook::judge {

struct Conclusion {
  std::vector<Cause> causes;       ///< each once, the one that explains most failed tests first; empty: cannot be told
  std::vector<std::string> facts;  ///< sentences that halve the search, the most telling first; at most kMostFacts
};
inline constexpr std::size_t kMostFacts = 4;

/// All verdicts of one exercise on one backend, the passed ones too: what passes narrows what fails. Empty if none
/// failed.
Conclusion conclude(const std::vector<const Verdict*>& of_one_exercise);

}  // namespace workbook::judge
