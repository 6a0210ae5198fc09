// What the engine works with: the book, and what builds it. It knows no terminal: whoever wants to watch gives it a
// callback.
#pragma once

#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/book/manifest.hpp"
#include "common/worker/build.hpp"

namespace workbook::judge {

/// Something that this machine lacks: the command exits with 3.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Called with what is being done now; with an empty text when nothing is any more.
using Progress = std::function<void(const std::string&)>;

struct Workspace {
  book::Book book;
  worker::Toolchain toolchain;
  Progress on_progress;  ///< empty: nobody watches

  /// A path as the reader should see it: relative to the book if it lies there.
  std::string shown(const std::filesystem::path& path) const;
  void progress(const std::string& text) const {
    if (on_progress) on_progress(text);
  }
};

/// Opens the book: WORKBOOK_ROOT and WORKBOOK_BUILD, set by the launcher. EnvironmentError without them.
Workspace open_workspace();

/// Why nothing can run on a backend here; empty if it can. Without a GPU nothing is compiled for one, nvcc or not.
std::string why_unavailable(const Workspace& workspace, Backend backend);

/// The first of the chapter's backends that can be built here: exercises are judged on it. Its first one if none can.
Backend first_backend(const Workspace& workspace, const book::Chapter& chapter);

/// The CMake targets that workers of `chapter` need, on all backends that can be built here.
std::vector<std::string> worker_targets(const Workspace& workspace, const book::Chapter& chapter);
/// And those that testing it needs.
std::vector<std::string> test_targets(const Workspace& workspace, const book::Chapter& chapter);

}  // namespace workbook::judge
