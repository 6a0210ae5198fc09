// The code that the tests of a chapter run on: the whole chapter, one graft per exercise (the solution with the tree's
// region inserted), and the previous chapter for comparison. A plan is made from files alone. It is built later,
// together with other plans.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"
#include "common/book/markers.hpp"
#include "common/judge/jobs.hpp"

namespace workbook::judge {

/// The location of an exercise's region in the tree.
struct RegionInTree {
  std::string file;                   ///< relative to the chapter's folder
  book::MarkedFile reader, solution;  ///< the tree's file, and the solution's
  std::string error;                  ///< why the tree's file cannot be grafted
};

/// The code for the tests of one exercise. Exactly one member is set.
struct PlannedExercise {
  bool open = false;   ///< no code: the exercise is still a TODO
  std::string worker;  ///< the job of this name
  std::string broken;  ///< no code: its markers are missing, as this message says
};

struct PlanRequest {
  Backend backend = Backend::cpu;  ///< one of the chapter's
  std::string exercise;            ///< only this exercise's tests, or kWhole; empty: all
  bool previous_readers = false;   ///< compares with the reader's own previous chapter
  /// Whether exercises are judged on grafts or on the whole chapter. Default: the whole chapter on the GPU, grafts
  /// elsewhere.
  std::optional<bool> grafts = {};
  /// An exercise whose graft does not compile is judged on the whole chapter, which may contain what it needs.
  bool whole_stands_in = true;
  /// Part of the names that guard a graft's region (book::with_bodies).
  std::string token = "reader";
  /// By exercise: the others that are stubs in its graft, because the book's answer does not need theirs.
  std::map<std::string, std::set<std::string>> stubs = {};
  bool debug = false;  ///< builds the exercises separately for a debugger: -O0 -g
  int version = 0;     ///< the version that runs, in a tree that holds several (common/book/combine.hpp)
};

struct Plan {
  const book::Chapter* chapter = nullptr;
  Tree tree;
  PlanRequest request;
  std::string unavailable;  ///< why nothing is built: the backend's kernels cannot run here; empty if they can
  std::map<std::string, RegionInTree> regions;
  std::map<std::string, PlannedExercise> exercises;  ///< the requested ones
  std::string whole;                                 ///< job of the whole chapter
  std::string previous;                              ///< job of the chapter to compare with; empty: none
  Element previous_element = float32;
  std::map<std::string, worker::WorkerJob> jobs;  ///< by name
  /// The whole chapter, where one exercise is requested: built only if the exercise's graft does not compile.
  std::optional<worker::WorkerJob> stand_in;
  std::map<std::string, std::string> known_as;  ///< a file of a graft: the file that it is a copy of
};
/// Makes a plan and writes the files of its grafts. Unless the request says otherwise, exercises are judged on grafts
/// on the CPU and the simulator, and on the whole chapter on the GPU. Nothing is built for an open region. A graft that
/// equals the solution or the whole tree uses that worker.
Plan make_plan(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree, const PlanRequest& request);

using Built = std::map<std::string, worker::WorkerBuilt>;                   ///< by job
using Build = std::function<Built(const std::vector<worker::WorkerJob>&)>;  ///< how workers are built
/// Builds the workers of all these plans together, then the stand-ins of those whose graft does not compile. `build`
/// empty: worker::build_workers.
Built build_plans(const Workspace& workspace, const std::vector<Plan>& plans, const Build& build = {});

}  // namespace workbook::judge
