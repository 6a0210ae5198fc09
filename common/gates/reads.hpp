// Which files of chapters a test program of the book's own takes, as its CMakeLists.txt says.
#pragma once

#include <filesystem>
#include <set>
#include <string>

namespace workbook::gates {

/// All files of chapters with these numbers, and of the others those with these names.
struct OfChapters {
  std::set<int> chapters;
  std::set<std::string> names;

  /// Whether a file of the book, relative to its root, is one of them, or of no chapter.
  bool take(const std::filesystem::path& relative) const;
};

}  // namespace workbook::gates
