// The engine's inputs: the book and the toolchain that builds it. It has no terminal: a caller that shows progress
// provides a callback.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/book/manifest.hpp"
#include "common/worker/build.hpp"

namespace workbook::judge {

/// This machine lacks a requirement; the command exits with 3.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws EnvironmentError with a formatted message.
template <class... Args>
[[noreturn]] void fail_environment(fmt::format_string<Args...> format, Args&&... args) {
  throw EnvironmentError(fmt::format(format, std::forward<Args>(args)...));
}

/// Called with the current activity, and with an empty text at its end.
using Progress = std::function<void(const std::string&)>;

struct Workspace {
  book::Book book;
  worker::Toolchain toolchain;
  Progress on_progress;  ///< empty: progress is not shown

  /// A path for the reader: relative to the book if it is inside.
  std::string shown(const std::filesystem::path& path) const;
  void progress(const std::string& text) const {
    if (on_progress) on_progress(text);
  }
};

/// Opens the book: WORKBOOK_ROOT and WORKBOOK_BUILD, set by the launcher. EnvironmentError without them.
Workspace open_workspace();

/// The reason why a backend cannot run here; empty if it can. Without a GPU nothing is compiled for CUDA, even if nvcc
/// is present.
std::string why_unavailable(const Workspace& workspace, Backend backend);

/// The first of the chapter's backends that can be built here, on which exercises are judged. If none can, the first
/// backend.
Backend first_backend(const Workspace& workspace, const book::Chapter& chapter);

/// The CMake targets that workers of `chapter` need on all backends that can be built here.
std::vector<std::string> worker_targets(const Workspace& workspace, const book::Chapter& chapter);
/// The same with the targets of its test program.
std::vector<std::string> test_targets(const Workspace& workspace, const book::Chapter& chapter);

}  // namespace workbook::judge
