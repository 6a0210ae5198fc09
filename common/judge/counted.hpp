// Compares the simulator's counters of two builds of a chapter on one small problem.
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
  std::string problem;  ///< "N=256, d=64, one head"; empty: nothing was counted
  std::vector<CountedDifference> differences;
};

/// Compares the solution that contains the tree's region of this exercise with the solution itself. Empty for a chapter
/// without kernels, where the simulator does not count, or if the region does not compile or run.
Counted count_beside_solution(const Workspace& workspace, const book::Chapter& chapter, const std::string& exercise);

}  // namespace workbook::judge
