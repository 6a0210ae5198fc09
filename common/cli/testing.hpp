// Running a chapter's tests on a tree of its files: builds the workers (the whole chapter, and a graft per exercise),
// runs the chapter's test program, collects what it says. Used by test, watch, check, and whoever grades.
#pragma once

#include <filesystem>
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
  bool all_passed() const;  ///< at least one test passed, and all others are skipped: they cannot run here
};

struct RunRequest {
  std::string backend = "cpu";
  std::string only;      ///< one test by name; empty: all
  std::string exercise;  ///< only this exercise's tests, or "whole"; empty: all
  bool debug = false;
  double time_limit = 10;
  std::filesystem::path previous;  ///< worker of the previous chapter; empty: none
};

/// Runs the tests of `chapter` on `tree`.
ChapterRun run_tests(const Session& session, const book::Chapter& chapter, const Tree& tree, const RunRequest& request);

/// The job that builds a tree's whole chapter.
worker::WorkerJob whole_job(const Session& session, const book::Chapter& chapter, const Tree& tree,
                            const std::string& backend = "cpu");

/// Builds the worker of the chapter before `chapter` on `backend`, from solutions/ or chapters/; empty if there is
/// none.
std::filesystem::path build_previous(const Session& session, const book::Chapter& chapter, bool readers);

/// The CMake targets that testing `chapter` needs.
std::vector<std::string> test_targets(const book::Chapter& chapter);

/// {"chapter", "passed", …, "tests": […]}, as notes/json.md documents it.
nlohmann::json to_json(const ChapterRun& run);

}  // namespace workbook::cli
