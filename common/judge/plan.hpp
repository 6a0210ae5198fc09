// Which code the tests of a chapter run on: the whole chapter, for each exercise a graft (the solution with the tree's
// region put in), and the chapter before, to compare with. A plan is made from files alone; it is built later, together
// with others, in one build.
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

/// Where an exercise's region stands in the tree.
struct RegionInTree {
  std::string file;                   ///< relative to the chapter's folder
  book::MarkedFile reader, solution;  ///< the tree's file, and the solution's
  std::string error;                  ///< why the tree's file cannot be grafted
};

/// What the tests of one exercise run on: one of the three.
struct PlannedExercise {
  bool open = false;   ///< nothing: it is still a TODO
  std::string worker;  ///< the job of this name
  std::string broken;  ///< nothing: its markers are gone, and this says which
};

struct PlanRequest {
  Backend backend = Backend::cpu;  ///< one of the chapter's
  std::string exercise;            ///< only this exercise's tests, or kWhole; empty: all
  bool previous_readers = false;   ///< the previous chapter, to compare with, is the reader's own
  /// Whether each exercise is judged on a graft, or on the whole chapter; not said: on the GPU alone on the latter.
  std::optional<bool> grafts = {};
  /// An exercise whose graft does not compile is judged on the whole chapter, which may hold what it needs.
  bool whole_stands_in = true;
  /// Part of the names that guard a graft's region (book::with_bodies).
  std::string token = "reader";
  bool debug = false;  ///< exercises run on builds of their own for a debugger: -O0 -g
};

struct Plan {
  const book::Chapter* chapter = nullptr;
  Tree tree;
  PlanRequest request;
  std::string unavailable;  ///< why nothing is built: the backend's kernels cannot run here; empty if they can
  std::map<std::string, RegionInTree> regions;
  std::map<std::string, PlannedExercise> exercises;  ///< those that are asked for
  std::string whole;                                 ///< job of the whole chapter
  std::string previous;                              ///< job of the chapter to compare with; empty: there is none
  Element previous_element = float32;
  std::map<std::string, worker::WorkerJob> jobs;  ///< by name
  std::map<std::string, std::string> known_as;    ///< a file of a graft: the file that it is a copy of
};
/// Writes the grafts' files. On the CPU and the simulator each exercise is judged on a graft, on the GPU on the whole
/// chapter (or as the request says). Nothing is built for an open region; a graft that equals the solution or the whole
/// tree is that worker.
Plan make_plan(const Workspace& workspace, const book::Chapter& chapter, const Tree& tree, const PlanRequest& request);

using Built = std::map<std::string, worker::WorkerBuilt>;                   ///< by job
using Build = std::function<Built(const std::vector<worker::WorkerJob>&)>;  ///< how workers are built
/// The workers of all these plans in one build. `build` empty: worker::build_workers.
Built build_plans(const Workspace& workspace, const std::vector<Plan>& plans, const Build& build = {});

}  // namespace workbook::judge
