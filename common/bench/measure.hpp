// Measuring: builds the stages, runs them, asks the device, PyTorch and the profiler. It prints nothing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/bench/results.hpp"
#include "common/book/manifest.hpp"
#include "common/judge/workspace.hpp"

namespace workbook::bench {

/// What is to be measured.
struct MeasureRequest {
  std::vector<std::string> chapters;  ///< numbers or names; empty: all
  bool only = false;                  ///< not also those before them
  bool own = false;                   ///< the reader's stages in place of the book's
  std::vector<std::int64_t> lengths;  ///< N; empty: 256 … 16384 on a GPU, 128 … 1024 elsewhere
  std::vector<std::int64_t> head_dims{64, 128};
  std::int64_t group = 1;     ///< heads of Q that share one of K and V
  std::int64_t queries = 0;   ///< Nq; 0: N
  std::string pass = "both";  ///< or "forward", "backward"
  std::vector<Mask> masks;    ///< empty: all
  /// Only stages for these; of a chapter that has several each is timed in turn at every shape. Empty: each chapter's
  /// own.
  std::vector<Element> elements = {};
  /// Asks for a variant of a stage, which is timed in turn with the stage itself, where there is one; empty: none.
  std::map<std::string, double> numbers = {};
  double budget = 0.2;  ///< seconds for the timed calls of one shape
  bool peers = false, profile = false, steps = false;
  std::vector<std::string> libraries;  ///< peers beside PyTorch: shared libraries with peers.py's interface
  std::string command;                 ///< the command line, for the results
};

/// The chapters that are named and, unless `only`, those before them; all if none is named. InputError for one that the
/// book does not have.
std::vector<const book::Chapter*> wanted_chapters(const judge::Workspace& workspace, const MeasureRequest& request);

/// What is timed of a chapter: its stage for an element, or a variant of it.
struct Version {
  std::string name;  ///< "08_registers, bfloat16" beside "08_registers"
  Element element;
  std::map<std::string, double> numbers;
};
/// Those that are asked for, the chapter's own element first, each without the numbers of the request and with them;
/// none if it has no stage there for these elements.
std::vector<Version> versions_of(const book::Chapter& chapter, Backend backend, const MeasureRequest& request);

/// Everything that can be measured here; what cannot is in Results::skipped.
Results measure(const judge::Workspace& workspace, const MeasureRequest& request);

}  // namespace workbook::bench
