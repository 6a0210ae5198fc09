// An experiment in a file: settings, text, and every run with the complete state, so that a resumed run has the same
// losses.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/training/trainer.hpp"
#include "common/worker/backend.hpp"

namespace workbook::training {

/// The code that computes attention: PlainAttention, or a tree of the book on a backend.
struct CodeUnderTraining {
  std::string tree;                         ///< "chapters" or "solutions"; empty: PlainAttention
  std::optional<Backend> backend;           ///< nothing if `tree` is empty
  std::vector<std::int64_t> chapters = {};  ///< chapters whose attention may be used; empty: any
  bool operator==(const CodeUnderTraining&) const = default;
};

struct Experiment {
  Settings settings;
  std::string text;            ///< the training text, so that a resumed run does not depend on the original file
  std::vector<RunState> runs;  ///< in order of execution; a run without a step has not started
  CodeUnderTraining code;
};

/// Writes a temporary file and renames it, so that no partial checkpoint appears. std::runtime_error on failure.
///
///   workbook training checkpoint, version 2, HASH\n    HASH: hash of all bytes after this line
///   one line of JSON: settings, sizes, the scalars of every run
///   the text; then for each run weights, m, v, and its losses, scales (float32, little-endian) and skips (bytes)
void write_checkpoint(const std::filesystem::path& file, const Experiment& experiment);

/// InputError, naming the file and what is wrong, unless it is a complete checkpoint of a supported version with valid
/// settings.
Experiment read_checkpoint(const std::filesystem::path& file);

}  // namespace workbook::training
