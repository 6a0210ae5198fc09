// An experiment in a file: settings, text, and every run with all that it needs to go on to the same losses.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/training/trainer.hpp"
#include "common/worker/backend.hpp"

namespace workbook::training {

/// Whose code does attention: nobody's, that is PlainAttention; or a tree of the book on a backend.
struct CodeUnderTraining {
  std::string tree;                         ///< "chapters" or "solutions"; empty: the book's plain attention
  std::optional<Backend> backend;           ///< nothing where `tree` is empty
  std::vector<std::int64_t> chapters = {};  ///< whose attention may be taken; empty: of any that has it
  bool operator==(const CodeUnderTraining&) const = default;
};

struct Experiment {
  Settings settings;
  std::string text;            ///< what is trained on: a resumed run does not depend on the file it came from
  std::vector<RunState> runs;  ///< in the order in which they are made; those without a step have not begun
  CodeUnderTraining code;
};

/// Writes a temporary file and renames it: there is never half a checkpoint. std::runtime_error if it cannot.
///
///   workbook training checkpoint, version 2, HASH\n    HASH: of all bytes after this line
///   one line of JSON: settings, sizes, the small numbers of every run
///   the text; then for each run weights, m, v, and its losses, scales (float32, little-endian) and skips (bytes)
void write_checkpoint(const std::filesystem::path& file, const Experiment& experiment);

/// InputError, naming the file and what is wrong, unless it is a whole checkpoint of a version that this book reads,
/// with settings that make sense.
Experiment read_checkpoint(const std::filesystem::path& file);

}  // namespace workbook::training
