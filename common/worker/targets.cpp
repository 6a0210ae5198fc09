// Builds the CMake targets that workers and tests need: test programs, the server, the simulator.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "common/worker/build.hpp"
#include "common/worker/build_lock.hpp"
#include "common/worker/command.hpp"
#include "common/worker/hash.hpp"

namespace workbook::worker {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

/// A file's name, size and time; only the name if the file does not exist.
std::string state_of(const fs::path& path) {
  std::error_code missing;
  const auto time = fs::last_write_time(path, missing);
  if (missing) return path.string() + "\n";
  const auto size = fs::is_regular_file(path) ? fs::file_size(path) : 0;
  return fmt::format("{} {} {}\n", path.string(), size, time.time_since_epoch().count());
}

/// The state of all files of the book's own code, and of Debian's package list, which represents compilers and
/// libraries. Reading it takes two milliseconds; a query of CMake and ninja takes a hundred times as long.
std::string state_of_sources(const Toolchain& toolchain) {
  std::vector<std::string> states;
  for (const char* folder : {"common", "tests", "cmake"}) {
    std::error_code error;
    for (fs::recursive_directory_iterator entry(toolchain.root / folder, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->is_regular_file()) states.push_back(state_of(entry->path()));
    }
  }
  std::sort(states.begin(), states.end());
  for (const fs::path& file : {toolchain.root / "CMakeLists.txt", toolchain.root / "CMakePresets.json",
                               toolchain.build_folder / "toolchain.json", fs::path("/var/lib/dpkg/status")})
    states.push_back(state_of(file));
  return fmt::format("{}", fmt::join(states, ""));
}

/// The outputs of a target that are in use: a program of its name, and the objects that workers are linked with.
std::string state_of_made(const Toolchain& toolchain, const std::string& target) {
  std::string state = state_of(toolchain.build_folder / "bin" / target);
  for (const auto& [backend, how] : toolchain.backends) {
    for (const auto* objects : {&how.objects, &how.shared_objects})
      for (const std::string& object : *objects) state += state_of(object);
    for (const std::string& header : how.all_precompiled())
      state += state_of(toolchain.build_folder / (header + ".gch"));
  }
  return state;
}

/// The targets that were built, with the state of their sources.
class BuiltTargets {
 public:
  explicit BuiltTargets(const Toolchain& toolchain)
      : toolchain_(toolchain),
        path_(toolchain.build_folder / "built-targets.json"),
        sources_(state_of_sources(toolchain)) {
    std::ifstream file(path_);
    built_ = json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!built_.is_object()) built_ = json::object();
  }
  bool has(const std::string& target) const { return built_.value(target, "") == state(target); }
  void remember(const std::vector<std::string>& targets) {
    for (const std::string& target : targets) built_[target] = state(target);
    std::ofstream(path_) << built_.dump(1);
  }

 private:
  std::string state(const std::string& target) const { return hash(sources_ + state_of_made(toolchain_, target)); }
  const Toolchain& toolchain_;
  fs::path path_;
  std::string sources_;  ///< before the build, so that files saved during it are built next time
  json built_;
};

}  // namespace

void build_targets(const Toolchain& toolchain, const std::vector<std::string>& targets) {
  const BuildLock lock(toolchain.build_folder);
  BuiltTargets built(toolchain);
  if (std::ranges::all_of(targets, [&](const std::string& target) { return built.has(target); })) return;
  std::vector<std::string> argv{toolchain.cmake, "--build", toolchain.build_folder.string(), "--target"};
  argv.insert(argv.end(), targets.begin(), targets.end());
  const CommandResult result = run_command(argv);
  if (result.exit_code == 0) return built.remember(targets);
  std::string end = result.output;
  if (end.size() > 4000) end = "…" + end.substr(end.size() - 4000);
  throw std::runtime_error("building the book's own code failed:\n" + end);
}

}  // namespace workbook::worker
