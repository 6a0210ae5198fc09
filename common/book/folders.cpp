#include "common/book/folders.hpp"

#include <stdlib.h>

#include <stdexcept>

namespace workbook::book {
namespace fs = std::filesystem;

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::is_directory(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files.push_back(entry.path());
  return files;
}

bool is_code(const fs::path& file) {
  const fs::path extension = file.extension();
  return extension == ".cpp" || extension == ".hpp" || extension == ".cu" || extension == ".cuh";
}

std::shared_ptr<const fs::path> temporary_folder(const fs::path& parent, const std::string& prefix) {
  std::string name = parent / (prefix + "XXXXXX");
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder in " + parent.string());
  return {new fs::path(fs::canonical(name)), [](const fs::path* path) {
            std::error_code ignored;
            fs::remove_all(*path, ignored);
            delete path;
          }};
}

}  // namespace workbook::book
