// Writing chapters/ from solutions/ without ever overwriting a reader's work.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"
#include "common/book/markers.hpp"

namespace workbook::book {

/// The chapter's solution files in the order of chapter.files, named relative to the root ("solutions/NN_name/file").
/// Their regions are the chapter's exercises: MarkerError for markers that do not fit, an exercise that chapter.toml
/// does not have, or one with two regions; ManifestError for an exercise without a region.
std::vector<MarkedFile> read_solution(const Book& book, const Chapter& chapter);

/// The reader's files, likewise ("chapters/NN_name/file"), with whatever regions are whole (parse_reader); a file that
/// is not there has no lines.
std::vector<MarkedFile> read_reader(const Book& book, const Chapter& chapter);

/// What `chapters/NN_name/file` is, compared with the stub that its solution gives.
enum class StubState {
  current,   ///< equals the stub (line ends apart)
  missing,   ///< not there
  outdated,  ///< equals the last generated stub, but the solution has changed since: safe to write
  work,      ///< regions filled in, the rest as in the stub: the reader's work; never for a file without regions
  drifted,   ///< text outside the regions differs from the stub, and it is not an older stub: changed by the reader, or
             ///< work on top of an older stub, which only git can merge
};

struct StubFile {
  const Chapter* chapter;
  std::string file;            ///< relative to the chapter's folder
  std::filesystem::path path;  ///< chapters/NN_name/file
  StubState state;
  std::string stub;  ///< the text that the solution gives
  int line = 0;      ///< first line that differs outside the regions (drifted, outdated)
};

/// Compares all files of all chapters that have solutions; the book must outlive the result. chapters/generated.txt
/// holds a hash of every stub as last written, one "HASH  PATH" a line, committed with the stubs; it tells an outdated
/// stub from a reader's work.
std::vector<StubFile> compare_stubs(const Book& book);

/// The result of writing.
struct StubsWritten {
  std::vector<std::filesystem::path> written;
  std::vector<std::filesystem::path> kept;     ///< the reader's work or drifted: not written
  std::vector<std::filesystem::path> backups;  ///< copies made under .workbook/backup/TIME/ (force only)
};

/// Writes what is missing or outdated, each file atomically, and generated.txt. With `force` writes everything, after
/// copying each file that holds work to .workbook/backup/TIME/.
StubsWritten write_stubs(const Book& book, bool force);

/// Where a release keeps its stubs, as NN_name/file: what `reset` goes back to where there is no solution.
inline constexpr const char* kPristine = "chapters/.pristine";

/// Puts one exercise back to its stub: only that region, after a backup. Returns the backup's path. Throws
/// ManifestError naming file and line if the markers are gone ("use reset --file"), leaving the file as it is. Without
/// a solution the stub is the pristine one; without that it is taken to be WORKBOOK_TODO(id).
std::filesystem::path reset_exercise(const Book& book, const std::string& id);

/// Puts the whole file that holds exercise `id` back, after a backup. Returns the backup's path; empty if there was no
/// file to back up. Throws ManifestError if there is neither a solution to make the stub from nor a pristine stub.
std::filesystem::path reset_file(const Book& book, const std::string& id);

}  // namespace workbook::book
