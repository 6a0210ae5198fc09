// Runs a chapter's tests on a tree of its files: plans and builds the workers, runs the chapter's test program on them,
// and collects its verdicts. Used by test, watch, the gates and grading.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/judge/plan.hpp"
#include "common/judge/verdict.hpp"
#include "common/judge/wrong_solutions.hpp"

namespace workbook::judge {

/// The results of one chapter's tests on one backend.
struct ChapterRun {
  const book::Chapter* chapter = nullptr;
  Backend backend = Backend::cpu;
  std::string tree;
  std::vector<Verdict> tests;
  std::vector<std::string> notes;         ///< for example that a graft did not compile and the whole chapter was tested
  std::string warnings;                   ///< the compiler's, for the whole chapter
  std::string own_warnings;               ///< those about the reader's exercises, from any build
  std::string unavailable;                ///< the reason if the backend's kernels cannot run here
  std::map<std::string, int> calls = {};  ///< how often each test called the code under test
  std::map<std::string, std::vector<Evidence>> evidence = {};  ///< by test, in a run beside known wrong solutions
  bool finished = true;  ///< the test program has finished; otherwise a verdict of kWhole says how it ended

  int count(Result result) const;
  bool none_failed() const;  ///< every test passed or was skipped
};
/// {"chapter", "backend", "source", "passed", …, "notes", "tests": […]}, as notes/json.md documents it.
nlohmann::json to_json(const ChapterRun& run);
/// Whether at least one test passed and all others passed or were skipped.
bool all_passed(const std::vector<ChapterRun>& runs);

struct RunRequest : PlanRequest {
  std::vector<std::string> groups;  ///< only the tests of these exercises (or kWhole); empty: all planned ones
  std::string only;  ///< one test by name; empty: all. With `debug` the test runs under a debugger on this terminal.
  bool until_failure = false;  ///< stops after the first test that fails
  bool whole_waits = false;    ///< if an exercise fails, the whole chapter's tests are blocked by it
  double time_limit = 10;
  /// If the tree holds several versions: those that are known wrong solutions, by exercise. Otherwise they are built
  /// when a test fails.
  std::map<std::string, std::vector<WrongVersion>> wrong_versions = {};
  bool small_edits = false;  ///< looks for causes among small edits of the solution too, which may take a minute
  /// Called with the verdicts so far before the causes of failures are looked for, which may take a compilation.
  std::function<void(const ChapterRun&)> before_search = {};
  std::string sanitizer;  ///< on the GPU: the compute-sanitizer tool that runs the workers; empty: none

  // Set by grading only.
  Build build;                             ///< builds the workers, of the code under test and of the book
  const Workspace* books = nullptr;        ///< the book's own, where known wrong solutions are built once for all
  std::vector<std::string> worker_prefix;  ///< command that starts a worker in isolation; empty: none
  std::filesystem::path program;           ///< test program; empty: the chapter's public one
  bool hidden = false;                     ///< the program holds an instructor's tests, whose verdicts are hidden
  /// Seconds that the tests of each exercise, and of kWhole, may take together; empty: no limit.
  std::map<std::string, double> seconds = {};
};

/// Runs the tests of a plan that has been built. If the CPU is among the chapter's backends, tests tagged [kernel] run
/// on the other backends and all others on the CPU. If the backend cannot run here, every test is skipped with the
/// reason.
ChapterRun run_plan(const Workspace& workspace, const Plan& plan, const Built& built, const RunRequest& request);

/// The plans for each backend of the chapter, or for `only`.
std::vector<Plan> plan_backends(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree,
                                RunRequest request, std::optional<Backend> only);

}  // namespace workbook::judge
