// A folder of its own for each test, deleted afterwards.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

namespace workbook {

inline std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Its name has a space, as a reader's may.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name = "a book") {
    std::string path = (std::filesystem::temp_directory_path() / (name + " XXXXXX")).string();
    if (!::mkdtemp(path.data())) throw std::runtime_error("cannot make " + path);
    path_ = path;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view relative) const { return path_ / relative; }
  void write(std::string_view relative, std::string_view text) const {
    std::filesystem::create_directories((path_ / relative).parent_path());
    std::ofstream(path_ / relative, std::ios::binary) << text;
  }
  std::string read(std::string_view relative) const { return file_text(path_ / relative); }
  bool exists(std::string_view relative) const { return std::filesystem::exists(path_ / relative); }

 private:
  std::filesystem::path path_;
};

}  // namespace workbook
