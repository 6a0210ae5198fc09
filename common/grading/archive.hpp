// Archives, through libarchive. Entries are never written to disk, so a name with ../, a link or a device in an archive
// has no effect.
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

/// Whether this build can read and write archives (libarchive was found).
bool archives_supported();

struct ArchiveLimits {
  std::uint64_t archive = 256ull << 20;   ///< bytes of the file itself
  std::uint64_t unpacked = 512ull << 20;  ///< bytes of all entries together, after decompression, holes included
  std::uint64_t entry = 1ull << 20;       ///< bytes of one wanted entry
  std::size_t entries = 10000;
};

/// One entry of an archive, or one file of a folder.
struct Entry {
  std::string path;        ///< as stored in the archive
  bool regular = true;     ///< a file, not a link, folder or device
  std::string text;        ///< set only for wanted entries
  bool too_large = false;  ///< wanted, but over the limit: text is empty
};

/// Reads all entries of an archive: zip, 7z, rar, or tar, plain or with gzip, bzip2, xz or zstd. Calls `wanted` with
/// the path of each regular entry, and `take` with every entry; wanted entries have their text. ArchiveError as soon as
/// a limit is exceeded.
void read_archive(const std::filesystem::path& path, const ArchiveLimits& limits,
                  const std::function<bool(const std::string&)>& wanted, const std::function<void(Entry)>& take);

/// A file to write into an archive.
struct ArchivedFile {
  std::string text;
  bool executable = false;
};
/// Writes path -> file as .tar.gz, .zip, …, according to the file extension, without an owner. ArchiveError if that
/// fails; an incomplete archive may remain.
void write_archive(const std::filesystem::path& path, const std::map<std::string, ArchivedFile>& files);

}  // namespace workbook::grading
