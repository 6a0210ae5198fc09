#include "common/grading/archive.hpp"

#include <fmt/format.h>

#ifdef WORKBOOK_HAS_LIBARCHIVE
#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <ctime>
#include <memory>
#endif

namespace workbook::grading {
namespace fs = std::filesystem;

#ifndef WORKBOOK_HAS_LIBARCHIVE

bool archives_supported() {
  return false;
}
void read_archive(const fs::path& path, const ArchiveLimits&, const std::function<bool(const std::string&)>&,
                  const std::function<void(Entry)>&) {
  throw ArchiveError(fmt::format(
      "{}: archives need libarchive (package libarchive-dev); unpack the archive yourself and give the folder",
      path.string()));
}
void write_archive(const fs::path& path, const std::map<std::string, ArchivedFile>&) {
  throw ArchiveError(fmt::format("{}: archives need libarchive (package libarchive-dev)", path.string()));
}

#else

namespace {

using Reader = std::unique_ptr<archive, int (*)(archive*)>;

[[noreturn]] void fail(const fs::path& path, const std::string& reason) {
  throw ArchiveError(fmt::format("{}: {}", path.filename().string(), reason));
}

std::string reason_of(archive* a) {
  const char* text = archive_error_string(a);
  return text != nullptr ? text : "the archive is damaged";
}

}  // namespace

bool archives_supported() {
  return true;
}

void read_archive(const fs::path& path, const ArchiveLimits& limits,
                  const std::function<bool(const std::string&)>& wanted, const std::function<void(Entry)>& take) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error) fail(path, error.message());
  if (size > limits.archive)
    fail(path, fmt::format("the archive has {} MiB; allowed: {} MiB", size >> 20, limits.archive >> 20));
  const Reader reader(archive_read_new(), archive_read_free);
  archive* a = reader.get();
  // The formats that students use, listed explicitly: "all" would include filters that start other programs, and a
  // format that refers to files on this machine (mtree).
  for (const auto support :
       {archive_read_support_filter_gzip, archive_read_support_filter_bzip2, archive_read_support_filter_xz,
        archive_read_support_filter_zstd, archive_read_support_format_tar, archive_read_support_format_zip,
        archive_read_support_format_7zip, archive_read_support_format_rar, archive_read_support_format_rar5})
    support(a);
  if (archive_read_open_filename(a, path.c_str(), 1 << 16) != ARCHIVE_OK)
    fail(path, "this is not a readable archive: " + reason_of(a));
  std::uint64_t unpacked = 0;
  std::size_t entries = 0;
  while (true) {
    archive_entry* header = nullptr;
    const int status = archive_read_next_header(a, &header);
    if (status == ARCHIVE_EOF) return;
    if (status < ARCHIVE_WARN) fail(path, "the archive cannot be read: " + reason_of(a));
    if (++entries > limits.entries) fail(path, fmt::format("more than {} entries in the archive", limits.entries));
    Entry entry;
    const char* name = archive_entry_pathname_utf8(header);
    if (name == nullptr) name = archive_entry_pathname(header);
    entry.path = name != nullptr ? name : "";
    entry.regular = archive_entry_filetype(header) == AE_IFREG && archive_entry_hardlink(header) == nullptr;
    const bool is_wanted = entry.regular && wanted(entry.path);
    // All entries are read completely, so that the unpacked size is counted independently of the header.
    const void* block = nullptr;
    std::size_t count = 0;
    la_int64_t offset = 0;
    std::uint64_t end = 0;  // end of the counted part of this entry; holes of a sparse file are counted too
    while (true) {
      const int read = archive_read_data_block(a, &block, &count, &offset);
      if (read == ARCHIVE_EOF) break;
      if (read < ARCHIVE_WARN) fail(path, fmt::format("{} cannot be read: {}", entry.path, reason_of(a)));
      const std::uint64_t block_end = std::uint64_t(offset) + count;
      unpacked += std::max(block_end, end) - end;
      end = std::max(block_end, end);
      if (unpacked > limits.unpacked)
        fail(path, fmt::format("the archive unpacks to more than {} MiB", limits.unpacked >> 20));
      if (!is_wanted || entry.too_large) continue;
      if (block_end > limits.entry) {
        entry.too_large = true;
        entry.text.clear();
        continue;
      }
      entry.text.resize(std::size_t(offset));  // a sparse file's hole
      entry.text.append(static_cast<const char*>(block), count);
    }
    take(std::move(entry));
  }
}

void write_archive(const fs::path& path, const std::map<std::string, ArchivedFile>& files) {
  const Reader writer(archive_write_new(), archive_write_free);
  archive* a = writer.get();
  const auto check = [&](int status) {
    if (status < ARCHIVE_WARN) fail(path, "cannot be written: " + reason_of(a));
  };
  check(archive_write_set_format_filter_by_ext(a, path.c_str()));
  check(archive_write_open_filename(a, path.c_str()));
  const std::time_t now = std::time(nullptr);
  for (const auto& [name, file] : files) {
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(), archive_entry_free);
    archive_entry_set_pathname_utf8(entry.get(), name.c_str());
    archive_entry_set_size(entry.get(), la_int64_t(file.text.size()));
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), file.executable ? 0755 : 0644);
    archive_entry_set_mtime(entry.get(), now, 0);
    check(archive_write_header(a, entry.get()));
    if (archive_write_data(a, file.text.data(), file.text.size()) != la_ssize_t(file.text.size()))
      fail(path, "cannot be written: " + reason_of(a));
  }
  check(archive_write_close(a));
}

#endif

}  // namespace workbook::grading
