// Archives, through libarchive. What is read is never written to disk, so that a name with ../, a link or a device in
// an archive can do nothing. Knows nothing of assignments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

namespace workbook::grading {

/// An archive that cannot be read, or is larger than allowed.
class ArchiveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Whether this build can read and write archives (libarchive was there).
bool archives_supported();

struct ArchiveLimits {
  std::uint64_t archive = 256ull << 20;   ///< bytes of the file itself
  std::uint64_t unpacked = 512ull << 20;  ///< bytes of all entries together, after decompression, holes included
  std::uint64_t entry = 1ull << 20;       ///< bytes of an entry that is wanted
  std::size_t entries = 10000;
};

/// One entry of an archive, or one file of a folder.
struct Entry {
  std::string path;        ///< as it stands there
  bool regular = true;     ///< a file: no link, folder or device
  std::string text;        ///< filled in if it was wanted
  bool too_large = false;  ///< wanted, but over the limit: text is empty
};

/// Walks an archive: zip, 7z, rar, or tar, the latter plain or with gzip, bzip2, xz or zstd. `wanted` is asked with
/// each regular entry's path; `take` gets every entry, those wanted with their text. ArchiveError as soon as a limit is
/// exceeded.
void read_archive(const std::filesystem::path& path, const ArchiveLimits& limits,
                  const std::function<bool(const std::string&)>& wanted, const std::function<void(Entry)>& take);

/// A file to write into an archive.
struct ArchivedFile {
  std::string text;
  bool executable = false;
};
/// Writes path -> file as .tar.gz, .zip, … by the name's ending; owned by nobody in particular. ArchiveError if that
/// fails, which may leave a part of it.
void write_archive(const std::filesystem::path& path, const std::map<std::string, ArchivedFile>& files);

}  // namespace workbook::grading
