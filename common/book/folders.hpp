// Folders: lists of their files, and temporary folders.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace workbook::book {

/// The regular files below a folder; none if the folder does not exist.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

/// Whether a file is C++ or CUDA.
bool is_code(const std::filesystem::path& file);

/// A new folder in `parent` that only this user can enter. Removed with its last owner.
std::shared_ptr<const std::filesystem::path> temporary_folder(const std::filesystem::path& parent,
                                                              const std::string& prefix);

}  // namespace workbook::book
