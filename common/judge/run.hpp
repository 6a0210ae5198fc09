// Running a chapter's tests on a tree of its files: plans, builds, runs the chapter's test program on the workers, and
// collects its verdicts. Used by test, watch, the gates, and whoever grades.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/judge/plan.hpp"
#include "common/judge/verdict.hpp"

namespace workbook::judge {

/// What the tests of one chapter came to, on one backend.
struct ChapterRun {
  const book::Chapter* chapter = nullptr;
  Backend backend = Backend::cpu;
  std::string tree;
  std::vector<Verdict> tests;
  std::vector<std::string> notes;  ///< e.g. that a graft did not compile and the whole chapter counts
  std::string warnings;            ///< of the compiler, on the whole chapter
  std::string own_warnings;        ///< those in lines of exercises, in whichever build
  std::string unavailable;         ///< why nothing ran, if the backend's kernels cannot run here
  /// What a tree's workers have noted, where it is noted or has flags (common/cuda/instances.hpp), each line once.
  std::set<std::string> instances = {};
  bool finished = true;  ///< the test program got to its end; else a verdict of kWhole says how it ended

  int count(Result result) const;
  bool none_failed() const;  ///< every test passed, or is skipped: it cannot run here
};
/// {"chapter", "backend", "source", "passed", …, "notes", "tests": […]}, as notes/json.md documents it.
nlohmann::json to_json(const ChapterRun& run);
/// At least one test passed, and all others are skipped.
bool all_passed(const std::vector<ChapterRun>& runs);

struct RunRequest : PlanRequest {
  std::vector<std::string>
      groups;        ///< only the tests of these exercises, kWhole among them; empty: all that is planned
  std::string only;  ///< one test by name; empty: all. With `debug` it runs under a debugger on this terminal.
  bool until_failure = false;  ///< stops after the first test that fails
  double time_limit = 10;
  std::string sanitizer;  ///< on the GPU: a tool of compute-sanitizer that watches the workers; empty: none

  // What grading does in its own way.
  Build build;                             ///< builds the workers, of the code under test and of the book
  std::vector<std::string> worker_prefix;  ///< program and arguments that start a worker in its isolation; empty: none
  std::filesystem::path program;           ///< test program; empty: the chapter's public one
  bool hidden = false;                     ///< the program is an instructor's: its verdicts are hidden ones
  double total_time = 0;                   ///< seconds that the test program may take; 0: no limit
};

/// Runs the tests of a plan that is built. In a chapter that has the CPU among its backends, the tests tagged [kernel]
/// run on the others, all the rest on the CPU. Where the backend cannot run here, every test is skipped and says why.
ChapterRun run_plan(const Workspace& workspace, const Plan& plan, const Built& built, const RunRequest& request);

/// The plans for each backend of the chapter, or for `only`.
std::vector<Plan> plan_backends(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree,
                                RunRequest request, std::optional<Backend> only);

}  // namespace workbook::judge
