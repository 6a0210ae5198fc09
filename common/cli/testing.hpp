// Running a chapter's tests on a tree of its files: builds the workers (the whole chapter, and a graft per exercise),
// runs the chapter's test program, collects what it says. Used by test, watch, check, and whoever grades.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"
#include "common/cli/session.hpp"

namespace workbook::cli {

/// A tree: where a chapter's files under test lie.
struct Tree {
  std::string name;              ///< "chapters", "solutions", or a name for a folder of its own; unique
  std::filesystem::path folder;  ///< holds the chapter's files
};
Tree readers_tree(const Session& session, const book::Chapter& chapter);
Tree solutions_tree(const Session& session, const book::Chapter& chapter);

struct TestResult {
  std::string name;
  std::string exercise;      ///< "1.1", or "whole"
  std::string result;        ///< passed, failed, todo, blocked, skipped, crashed, timed out, not compiled
  std::string message;       ///< for the reader; empty if passed
  std::string likely_cause;  ///< empty if it cannot be told
  std::string diagnosis;     ///< its id
  std::string file;          ///< where to look, relative to the book; empty for the whole chapter
  int line = 0;
  double seconds = 0;
};

struct ChapterRun {
  const book::Chapter* chapter = nullptr;
  std::string backend, tree;
  std::vector<TestResult> tests;
  std::vector<std::string> notes;  ///< e.g. that a graft did not compile and the whole chapter counts
  std::string warnings;            ///< of the compiler, on the whole chapter

  int count(const std::string& result) const;
  bool none_failed() const;  ///< every test passed, or is skipped: it cannot run here
};
/// At least one test passed, and all others are skipped.
bool all_passed(const std::vector<ChapterRun>& runs);

struct RunRequest {
  std::string backend;   ///< one of the chapter's
  std::string only;      ///< one test by name; empty: all
  std::string exercise;  ///< only this exercise's tests, or "whole"; empty: all
  bool debug = false;
  double time_limit = 10;
  std::string sanitizer;          ///< on "cuda": a tool of compute-sanitizer that watches the workers; empty: none
  bool previous_readers = false;  ///< the previous chapter, to compare with, is the reader's own

  // What grading does in its own way.
  /// Builds the workers, of the code under test and of the book; empty: worker::build_workers.
  std::function<std::map<std::string, worker::WorkerBuilt>(const std::vector<worker::WorkerJob>&)> build;
  std::vector<std::string> worker_prefix;  ///< program and arguments that start a worker in its isolation; empty: none
  std::filesystem::path program;           ///< test program; empty: the chapter's public one
  double total_time = 0;                   ///< seconds that the test program may take; 0: no limit
  bool gpu_grafts = false;                 ///< judges each exercise on a graft on "cuda" too
};

/// Runs the tests of `chapter` on `tree` and one backend. On "cpu" and "sim" each exercise is judged on a graft, on
/// "cuda" on the whole chapter (or as the request says). In a chapter that has "cpu" among its backends, the tests
/// tagged [kernel] run on the others, all the rest on "cpu". Where the backend cannot run here, every test is skipped
/// and says why.
ChapterRun run_tests(const Session& session, const book::Chapter& chapter, const Tree& tree, const RunRequest& request);

/// The same on each backend of the chapter, or on `only_backend`; runs without any test are left out.
std::vector<ChapterRun> run_on_backends(const Session& session, const book::Chapter& chapter, const Tree& tree,
                                        RunRequest request, const std::string& only_backend = "");

/// Whether workers of this backend can be built here.
bool can_build(const Session& session, const std::string& backend);
/// Whether this machine has a GPU that CUDA can see.
bool gpu_present();
/// The first of the chapter's backends that can be built here: exercises are judged on it. Its first one if none can.
std::string first_backend(const Session& session, const book::Chapter& chapter);

/// The job that builds a tree's whole chapter.
worker::WorkerJob whole_job(const Session& session, const book::Chapter& chapter, const Tree& tree,
                            const std::string& backend);

/// The CMake targets that workers of `chapter` need, on all backends that can be built here.
std::vector<std::string> worker_targets(const Session& session, const book::Chapter& chapter);
/// And those that testing it needs.
std::vector<std::string> test_targets(const Session& session, const book::Chapter& chapter);

/// {"chapter", "passed", …, "tests": […]}, as notes/json.md documents it.
nlohmann::json to_json(const ChapterRun& run);

}  // namespace workbook::cli
