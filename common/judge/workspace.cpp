#include "common/judge/workspace.hpp"

#include <algorithm>
#include <cstdlib>

namespace workbook::judge {
namespace fs = std::filesystem;

std::string Workspace::shown(const fs::path& path) const {
  const fs::path relative = path.lexically_relative(book.root);
  return relative.empty() || *relative.begin() == ".." ? path.string() : relative.string();
}

Workspace open_workspace() {
  const char* root = std::getenv("WORKBOOK_ROOT");
  const char* build = std::getenv("WORKBOOK_BUILD");
  if (root == nullptr || build == nullptr) {
    throw EnvironmentError("WORKBOOK_ROOT and WORKBOOK_BUILD are not set: start the command as ./workbook");
  }
  Workspace workspace;
  workspace.book = book::load_book(fs::weakly_canonical(root));
  workspace.toolchain = worker::load_toolchain(fs::weakly_canonical(build), workspace.book.root);
  return workspace;
}

std::string why_unavailable(const Workspace& workspace, Backend backend) {
  if (!workspace.toolchain.can_build(backend)) return workspace.toolchain.why_not(backend);
  return backend == Backend::cuda && !worker::gpu_present() ? "this machine has no GPU" : "";
}

Backend first_backend(const Workspace& workspace, const book::Chapter& chapter) {
  const auto found =
      std::ranges::find_if(chapter.backends, [&](Backend backend) { return workspace.toolchain.can_build(backend); });
  return found == chapter.backends.end() ? chapter.backends.front() : *found;
}

std::vector<std::string> worker_targets(const Workspace& workspace, const book::Chapter& chapter) {
  std::vector<std::string> targets;
  for (const Backend backend : chapter.backends) {
    if (!workspace.toolchain.can_build(backend)) continue;
    const std::vector<std::string>& more = workspace.toolchain.backends.at(backend).targets;
    targets.insert(targets.end(), more.begin(), more.end());
  }
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  return targets;
}

std::vector<std::string> test_targets(const Workspace& workspace, const book::Chapter& chapter) {
  std::vector<std::string> targets = worker_targets(workspace, chapter);
  targets.push_back("tests_" + chapter.name());
  return targets;
}

}  // namespace workbook::judge
