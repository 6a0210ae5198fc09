// Versions of a chapter in one program (common/book/combine.hpp), and the known wrong solutions of an exercise as such
// versions: when a test fails, they run on the same calls (tests/support/wrong_solutions.hpp), and the one that gives
// the same values names the cause (causes.hpp).
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/book/combine.hpp"
#include "common/book/mutants.hpp"
#include "common/judge/causes.hpp"
#include "common/judge/plan.hpp"

namespace workbook::judge {

/// The solution's files.
book::Files solution_texts(const Workspace& workspace, const book::Chapter& chapter);

/// A tree of one program that holds many versions of a chapter, the book's as version 0.
struct Versions {
  Tree tree;
  std::set<int> apart;  ///< versions that cannot be combined with the others: the tree does not contain them
};
/// Writes them to the folder `name` in the build folder. Only kernels for the chapter's first element are compiled: the
/// same text for another element takes as long, and no version needs it.
Versions write_versions(const Workspace& workspace, const book::Chapter& chapter, Backend backend,
                        const std::string& name, const std::map<int, book::Files>& versions,
                        const std::string& naming = "");
/// A tree that is compiled for this purpose alone: with few optimisations.
Tree quick_tree(const Workspace& workspace, const book::Chapter& chapter, Backend backend, const std::string& name);

/// Builds what such trees need.
void build_quick_header(const Workspace& workspace);

/// The known wrong solutions of an exercise in a program.
struct WrongSolutions {
  std::filesystem::path executable;
  std::vector<WrongVersion> versions;
};
/// Builds the wrong solutions of these exercises of a chapter (kWhole: of its given code), one program for each, for
/// the backend of their tests, or for the simulator instead of a GPU. Those that have none, or do not compile, are
/// omitted. `build`: builds the workers, if that needs more than the workspace.
std::map<std::string, WrongSolutions> build_wrong_solutions(const Workspace& workspace, const book::Chapter& chapter,
                                                            Backend tested, const std::vector<std::string>& exercises,
                                                            const Build& build);
/// The same with the small edits of the exercises' answers (book/small_edits.hpp). Edits that do not compile are
/// omitted, which takes several compilations the first time; so are edits of lines that the readers' regions have
/// unchanged.
std::map<std::string, WrongSolutions> build_small_edits(const Workspace& workspace, const book::Chapter& chapter,
                                                        Backend tested, const std::vector<std::string>& exercises,
                                                        const std::map<std::string, RegionInTree>& readers);
/// The names of these jobs begin with this.
inline constexpr const char* kWrong = "wrong/";

/// The exercise by which tests and verdicts know a mutant's: kWhole for given code.
inline std::string exercise_of(const book::Mutant& mutant) {
  return mutant.exercise == book::kGivenCode ? kWhole : mutant.exercise;
}

}  // namespace workbook::judge
