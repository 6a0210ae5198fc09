// The reader's progress: the last result of each exercise with the hash of its region, so that the overview
// (`./workbook`) needs no build. A cache: safe to delete, written atomically; a damaged file counts as empty.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/book/manifest.hpp"

namespace workbook::book {

enum class Progress {
  open,      ///< the region is unsolved
  untested,  ///< edited since the last test
  passing,
  failing,
  lost,  ///< its markers or the reader's file are missing, or the file is damaged
};
const char* name(Progress progress);

struct ExerciseProgress {
  Progress state = Progress::open;
  std::filesystem::path file;  ///< chapters/NN_name/file
  int line = 0;                ///< its BEGIN line (its TODO line if open); if lost, a remaining marker line or 0
  std::string damage = {};     ///< what damages the file, also between its regions; empty if lost: markers are missing
};

/// The state of every exercise by id, from the reader's files and .workbook/progress.json.
std::map<std::string, ExerciseProgress> load_progress(const Book& book);

/// Stores results: exercise id -> passed. The hash covers the region's body and the chapter's test sources
/// (tests/NN_name/*), so that a change to either makes the exercise untested. Lost exercises are skipped. ManifestError
/// for an exercise that the book does not have.
void save_progress(const Book& book, const std::map<std::string, bool>& results);

/// The number of an exercise's hints that the reader has seen (.workbook/hints.json), and its update.
int hints_seen(const Book& book, const std::string& id);
void remember_hint(const Book& book, const std::string& id, int seen);

}  // namespace workbook::book
