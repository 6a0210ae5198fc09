// The known wrong solutions of an exercise, compiled as one program (common/book/combine.hpp). When a test fails, they
// run on the same calls, and the one that gives the same values names the mistake (tests/support/wrong_solutions.hpp).
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/book/mutants.hpp"
#include "common/judge/plan.hpp"

namespace workbook::judge {

struct WrongSolutions {
  /// A wrong solution, as a version of the program.
  struct Version {
    int number = 0;
    std::string id;        ///< of the mistake
    std::string sentence;  ///< for the reader
  };
  std::filesystem::path executable;
  std::vector<Version> versions;
};

/// Builds the wrong solutions of these exercises of a chapter (kWhole: of its given code), one program for each, for
/// the backend of their tests, or for the simulator instead of a GPU. Those that have none, or do not compile, are
/// omitted.
std::map<std::string, WrongSolutions> build_wrong_solutions(const Workspace& workspace, const book::Chapter& chapter,
                                                            Backend tested, const std::vector<std::string>& exercises);

/// What a mutant is called as a known wrong solution.
WrongSolutions::Version version_of(const book::Mutant& mutant, int number);

}  // namespace workbook::judge
