// Whole folders: what lies in them, and those that are there for a while.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace workbook::book {

/// The regular files below a folder; none where there is no such folder.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

/// Whether a file is C++ or CUDA.
bool is_code(const std::filesystem::path& file);

/// A new folder in `parent` that only we can enter, removed with its last owner.
std::shared_ptr<const std::filesystem::path> temporary_folder(const std::filesystem::path& parent,
                                                              const std::string& prefix);

}  // namespace workbook::book
