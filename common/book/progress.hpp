// What the reader has done so far: the last result of each exercise, remembered with the hash of its region, so that
// the glance (`./workbook`) needs no build. A cache: safe to delete, written atomically, a damaged file counts as
// empty.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "common/book/manifest.hpp"

namespace workbook::book {

enum class Progress {
  open,      ///< the region still asks for work
  untested,  ///< edited since the last test
  passing,
  failing,
  lost,  ///< its markers are gone from the reader's file, or the file is
};
const char* name(Progress progress);

struct ExerciseProgress {
  Progress state = Progress::open;
  std::filesystem::path file;  ///< chapters/NN_name/file
  int line = 0;  ///< of its BEGIN line (or of its TODO line if open); of what is left of its markers if lost, else 0
};

/// The state of every exercise by id, from the reader's files and .workbook/progress.json.
std::map<std::string, ExerciseProgress> load_progress(const Book& book);

/// Remembers results: exercise id -> passed. The hash covers the region's body and the chapter's test sources
/// (tests/NN_name/*), so that a change to either makes it untested. Lost exercises are left out; ManifestError for an
/// exercise that the book does not have.
void save_progress(const Book& book, const std::map<std::string, bool>& results);

/// Hints: how many of an exercise's hints the reader has seen (.workbook/hints.json), and seeing one more.
int hints_seen(const Book& book, const std::string& id);
void remember_hint(const Book& book, const std::string& id, int seen);

}  // namespace workbook::book
