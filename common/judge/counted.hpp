// Two builds of a chapter on one small problem, in what the simulator counts.
#pragma once

#include <string>
#include <vector>

#include "common/judge/plan.hpp"

namespace workbook::judge {

struct CountedDifference {
  std::string name;     ///< as in notes/json.md: "shared.load_wavefronts"
  std::string meaning;  ///< "wavefronts of shared loads"
  double yours = 0, book = 0;
};

struct Counted {
  std::string problem;  ///< "N=256, d=64, one head"; empty: nothing could be counted, or nothing is to be
  std::vector<CountedDifference> differences;
};

/// The solution with the tree's region of this exercise, beside the solution. Nothing in a chapter without kernels,
/// where the simulator does not count, or where the region does not compile or does not run.
Counted count_beside_solution(const Workspace& workspace, const book::Chapter& chapter, const std::string& exercise);

}  // namespace workbook::judge
