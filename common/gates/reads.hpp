// Which files of chapters a test program of the book's own takes, as its CMakeLists.txt says; and that it opens no
// others: a result that was kept while one of those has changed would be believed.
#pragma once

#include <filesystem>
#include <functional>
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

/// Runs a task in a thread of its own. Neither it nor a process that it starts can read a file of a chapter of the book
/// in `root` that `reads` does not take; everything else they can. False, and without effect, where the kernel has no
/// Landlock (Linux 5.13, and not everywhere).
bool with_only(const OfChapters& reads, const std::filesystem::path& root, const std::function<void()>& task);

}  // namespace workbook::gates
