// Reading and writing whole files, in one place: atomic writes, hashes, backups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/worker/hash.hpp"

namespace workbook::book {

/// The file's bytes, at most the first `most`; a device or a pipe, which may be endless, is read only with a limit.
/// std::runtime_error naming the path if it cannot be read.
std::string read_file(const std::filesystem::path& path, std::size_t most = std::string::npos);
/// Writes to a temporary file beside `path`, then renames it. Creates the parent folders. std::runtime_error on
/// failure, which leaves an existing file unchanged, and for anything else than a regular file.
void write_file(const std::filesystem::path& path, std::string_view text);
/// write_file, unless the file already holds `text` (keeps its time stamp, so that nothing is rebuilt).
bool write_if_changed(const std::filesystem::path& path, std::string_view text);
using worker::hash;
/// Copies `path` to `root`/.workbook/backup/TIME/..., keeping its path relative to `root`; never overwrites a backup.
std::filesystem::path back_up(const std::filesystem::path& root, const std::filesystem::path& path);

}  // namespace workbook::book
