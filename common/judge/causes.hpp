// The cause of an exercise's failed tests: the known wrong solution that fails them in the same way.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/judge/agreement.hpp"
#include "common/judge/verdict.hpp"

namespace workbook::judge {

/// A known wrong solution, as a version of a program (common/book/combine.hpp).
struct WrongVersion {
  int number = 0;
  std::string id;        ///< "5.1/3"
  std::string sentence;  ///< "Your code …; it must …."
};

/// The evidence of each failed test of an exercise, for the wrong solutions that its calls do not contradict.
using EvidenceByTest = std::map<std::string, std::vector<Evidence>>;

/// The causes, by test. One wrong solution that no test contradicts explains all tests that show it. If there is none,
/// each test is explained by itself; if one of them cannot be, an agreement with another is a coincidence. Wrong
/// solutions with the same sentence are one cause. If several causes agree equally well, the sentence names two of
/// them, and `also` the ids of the others. A single wrong element and NaN alone are evidence only if a single cause
/// agrees with them.
std::map<std::string, Cause> causes_of(const EvidenceByTest& tests, const std::vector<WrongVersion>& versions);

}  // namespace workbook::judge
