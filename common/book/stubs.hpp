// Generates chapters/ from solutions/ without overwriting a reader's work.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"
#include "common/book/markers.hpp"

namespace workbook::book {

/// The chapter's solution files in the order of chapter.files, named relative to the root ("solutions/NN_name/file").
/// Their regions are the chapter's exercises. MarkerError for invalid markers, an exercise that chapter.toml does not
/// have, or one with two regions. ManifestError for an exercise without a region.
std::vector<MarkedFile> read_solution(const Book& book, const Chapter& chapter);

/// The reader's files ("chapters/NN_name/file"), with their intact regions (parse_reader). A missing file has no lines.
std::vector<MarkedFile> read_reader(const Book& book, const Chapter& chapter);

/// The state of `chapters/NN_name/file`, compared with the stub of its solution.
enum class StubState {
  current,   ///< equals the stub (line ends apart)
  missing,   ///< does not exist
  outdated,  ///< equals the last generated stub, but the solution has changed since: safe to write
  work,      ///< regions filled in, the rest equal to the stub: the reader's work. Never for a file without regions
  drifted,   ///< text outside the regions differs, and the file is not an older stub: changed by the reader, or work on
             ///< an older stub, which only git can merge
};

struct StubFile {
  const Chapter* chapter;
  std::string file;            ///< relative to the chapter's folder
  std::filesystem::path path;  ///< chapters/NN_name/file
  StubState state;
  std::string stub;  ///< the stub of the solution
  int line = 0;      ///< first line that differs outside the regions (drifted, outdated)
};

/// Compares all files of all chapters that have solutions; the book must outlive the result. chapters/generated.txt
/// contains a hash of every stub as last written, one "HASH  PATH" per line, and is committed with the stubs. It
/// distinguishes an outdated stub from a reader's work.
std::vector<StubFile> compare_stubs(const Book& book);

/// The result of writing.
struct StubsWritten {
  std::vector<std::filesystem::path> written;
  std::vector<std::filesystem::path> kept;     ///< the reader's work or drifted: not written
  std::vector<std::filesystem::path> backups;  ///< copies made under .workbook/backup/TIME/ (force only)
};

/// Writes missing and outdated files, each atomically, and generated.txt. With `force`, writes all files after copying
/// each file that contains work to .workbook/backup/TIME/.
StubsWritten write_stubs(const Book& book, bool force);

/// The folder of a release's stubs (NN_name/file), which `reset` restores if there is no solution.
inline constexpr const char* kPristine = "chapters/.pristine";

/// Resets one exercise to its stub: only that region, after a backup. Returns the backup's path. ManifestError with
/// file and line if the markers are missing; the file is then unchanged. Without a solution the pristine stub is used,
/// and without that WORKBOOK_TODO(id).
std::filesystem::path reset_exercise(const Book& book, const std::string& id);

/// Resets the whole file that contains exercise `id`, after a backup. Returns the backup's path; empty if there was no
/// file to back up. ManifestError if there is neither a solution nor a pristine stub.
std::filesystem::path reset_file(const Book& book, const std::string& id);

}  // namespace workbook::book
