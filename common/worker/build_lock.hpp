// A lock that allows one build at a time, including the launcher's.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>

namespace workbook::worker {

/// Held during a build.
class BuildLock {
 public:
  explicit BuildLock(const std::filesystem::path& build_folder)
      : descriptor_(::open((build_folder / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) throw std::runtime_error(fmt::format("cannot write to {}", build_folder.string()));
    while (::flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~BuildLock() { ::close(descriptor_); }
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace workbook::worker
