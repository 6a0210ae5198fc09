#include "common/gates/reads.hpp"

#include <optional>

namespace workbook::gates {
namespace fs = std::filesystem;
namespace {

/// The number of the chapter that a file belongs to; nothing for one that is of no chapter.
std::optional<int> chapter_of(const fs::path& relative) {
  for (const fs::path& part : relative) {
    const std::string name = part.string();
    if (name.size() > 2 && name[2] == '_' && name.find_first_not_of("0123456789") == 2) return std::stoi(name);
  }
  return {};
}

}  // namespace

bool OfChapters::take(const fs::path& relative) const {
  const std::optional<int> chapter = chapter_of(relative);
  return !chapter || chapters.contains(*chapter) || names.contains(relative.filename().string());
}

}  // namespace workbook::gates
