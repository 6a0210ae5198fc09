#include "common/book/files.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <memory>
#include <stdexcept>
#include <system_error>

namespace workbook::book {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const char* what, const fs::path& path, const std::string& reason) {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", what, path.string(), reason));
}

std::string reason_of(int error) {
  return std::system_category().message(error);
}

/// A file that is being written. The destructor closes it and deletes it unless it has got its final name.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& target) : target_(target) {
    static std::atomic<unsigned> count = 0;
    path_ = target.parent_path() / fmt::format(".{}.tmp-{}-{}", target.filename().string(), ::getpid(), ++count);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail("write", target_, reason_of(errno));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write", target_, reason_of(errno));
      text.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  void rename_to_target() {
    struct stat old;
    if (::stat(target_.c_str(), &old) == 0) ::fchmod(descriptor_, old.st_mode & 07777);  // keeps the file mode
    const int closed = ::close(descriptor_);
    descriptor_ = -1;
    if (closed != 0) fail("write", target_, reason_of(errno));  // close may be the first call that reports a full disk
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail("write", target_, reason_of(errno));
    path_.clear();
  }

 private:
  fs::path target_, path_;
  int descriptor_ = -1;
};

}  // namespace

std::string read_file(const fs::path& path, std::size_t most) {
  std::error_code ignored;
  if (most == std::string::npos && fs::is_other(path, ignored)) fail("read", path, "it is not a regular file");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (!file) fail("read", path, reason_of(errno));
  std::string text;
  char buffer[1 << 14];
  while (text.size() < most) {
    const std::size_t count = std::fread(buffer, 1, std::min(sizeof buffer, most - text.size()), file.get());
    if (count == 0) break;
    text.append(buffer, count);
  }
  if (std::ferror(file.get())) fail("read", path, reason_of(errno));
  return text;
}

void write_file(const fs::path& path, std::string_view text) {
  std::error_code error;
  const fs::path target = fs::is_symlink(path, error) ? fs::weakly_canonical(path) : path;  // keeps the symbolic link
  error.clear();  // a missing file is not an error
  if (target.has_parent_path()) fs::create_directories(target.parent_path(), error);
  if (error) fail("write", target, error.message());
  if (fs::is_other(target, error)) fail("write", target, "it is not a regular file and would be replaced by one");
  TemporaryFile file(target);
  file.write(text);
  file.rename_to_target();
}

bool write_if_changed(const fs::path& path, std::string_view text) {
  if (fs::is_regular_file(path) && read_file(path) == text) return false;
  write_file(path, text);
  return true;
}

fs::path back_up(const fs::path& root, const fs::path& path) {
  const fs::path relative =
      fs::absolute(path).lexically_normal().lexically_relative(fs::absolute(root).lexically_normal());
  if (relative.empty() || *relative.begin() == "..") fail("back up", path, "it is outside " + root.string());
  const std::string text = read_file(path);
  const std::string time = fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(std::time(nullptr)));
  const fs::path folder = root / ".workbook" / "backup";
  fs::path copy = folder / time / relative;
  for (int suffix = 2; fs::exists(copy); ++suffix) copy = folder / fmt::format("{}-{}", time, suffix) / relative;
  write_file(copy, text);
  return copy;
}

}  // namespace workbook::book
