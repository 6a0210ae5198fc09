#include "common/worker/build.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>

#include "common/worker/command.hpp"

namespace workbook::worker {
namespace fs = std::filesystem;
namespace {

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Held while something is built: one build at a time, the launcher's included.
class BuildLock {
 public:
  explicit BuildLock(const fs::path& build_folder)
      : descriptor_(::open((build_folder / ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_EX);
  }
  ~BuildLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  BuildLock(const BuildLock&) = delete;
  BuildLock& operator=(const BuildLock&) = delete;

 private:
  int descriptor_;
};

/// A path as ninja wants it in a build statement.
std::string in_ninja(const fs::path& path) {
  std::string text;
  for (const char c : path.string()) {
    if (c == '$' || c == ' ' || c == ':') text += '$';
    text += c;
  }
  return text;
}

/// Words as a shell command within a ninja variable.
std::string command_line(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    for (const char c : (text.empty() ? "" : " ") + shell_quoted(word)) {
      if (c == '$') text += '$';
      text += c;
    }
  }
  return text;
}

std::string short_hash(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ull;
  return fmt::format("{:016x}", hash);
}

/// The path relative to the book's root if it lies there: what compilers then print.
fs::path from_root(const Toolchain& toolchain, const fs::path& path) {
  const fs::path relative = path.lexically_relative(toolchain.root);
  return relative.empty() || *relative.begin() == ".." ? path : relative;
}

}  // namespace

Toolchain load_toolchain(const fs::path& build_folder, const fs::path& root) {
  Toolchain toolchain;
  try {
    const nlohmann::json file = nlohmann::json::parse(contents(build_folder / "toolchain.json"));
    toolchain.build_folder = build_folder;
    toolchain.root = root;
    for (const auto& [key, member] : {std::pair{"ninja", &Toolchain::ninja},
                                      {"cmake", &Toolchain::cmake},
                                      {"compiler", &Toolchain::compiler},
                                      {"compiler_id", &Toolchain::compiler_id},
                                      {"build_type", &Toolchain::build_type},
                                      {"sanitize", &Toolchain::sanitize},
                                      {"version", &Toolchain::version}}) {
      toolchain.*member = file.at(key).get<std::string>();
    }
    for (const auto& [name, backend] : file.at("backends").items()) {
      toolchain.backends[name] = {backend.at("compile"), backend.at("link"), backend.at("libraries"),
                                  backend.at("objects")};
    }
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(fmt::format("{} is missing or damaged ({}): delete the folder {} and try again",
                                         (build_folder / "toolchain.json").string(), error.what(),
                                         build_folder.string()));
  }
  return toolchain;
}

std::map<std::string, WorkerBuilt> build_workers(const Toolchain& toolchain, const std::vector<WorkerJob>& jobs) {
  std::map<std::string, WorkerBuilt> built;
  if (jobs.empty()) return built;
  const BuildLock lock(toolchain.build_folder);
  const fs::path folder = toolchain.build_folder / "workers";
  fs::create_directories(folder / "objects");

  std::string rules = "ninja_required_version = 1.10\nbuilddir = " + in_ninja(folder) + "\n";
  for (const auto& [name, backend] : toolchain.backends) {
    // Each step keeps what the compiler said beside its output: ninja's own output mixes the jobs. Paths are quoted by
    // us throughout: ninja quotes its $out only where it sees a need.
    std::vector<std::string> compile = backend.compile;
    compile.push_back("-I" + toolchain.root.string());
    rules += fmt::format(
        "rule compile_{0}\n  command = {1} $include -MMD -MF $output.d -c $source -o $output > $output.log 2>&1\n"
        "  depfile = $depends\n  deps = gcc\n"
        "rule link_{0}\n  command = {2} $inputs {3} {4} -o $output > $output.log 2>&1\n",
        name, command_line(compile), command_line(backend.link), command_line(backend.objects),
        command_line(backend.libraries));
  }

  // A source that several jobs share (the operations of all grafts) is compiled once.
  std::set<std::string> known_objects;
  std::map<std::string, std::vector<fs::path>> objects_of;
  std::string builds;
  for (const WorkerJob& job : jobs) {
    const auto backend = toolchain.backends.find(job.backend);
    if (backend == toolchain.backends.end()) {
      throw std::runtime_error(fmt::format("this build has no backend \"{}\"", job.backend));
    }
    std::vector<std::string> inputs;
    std::string in_build;
    for (const fs::path& source : job.sources) {
      const std::string key = job.backend + '\n' + source.string() + '\n' + job.include.string();
      const fs::path object = folder / "objects" / (source.stem().string() + "." + short_hash(key) + ".o");
      objects_of[job.name].push_back(object);
      inputs.push_back(object.string());
      in_build += " " + in_ninja(object);
      if (!known_objects.insert(object.string()).second) continue;
      const fs::path shown = from_root(toolchain, source);
      builds += fmt::format(
          "build {}: compile_{} {}\n  include = {}\n  source = {}\n  output = {}\n  depends = {}\n", in_ninja(object),
          job.backend, in_ninja(shown), command_line({"-I" + from_root(toolchain, job.include).string()}),
          command_line({shown.string()}), command_line({object.string()}), in_ninja(object.string() + ".d"));
    }
    const fs::path executable = folder / job.name / "worker";
    std::string implicit;
    for (const std::string& object : backend->second.objects) implicit += " " + in_ninja(object);
    builds += fmt::format("build {}: link_{}{} |{}\n  inputs = {}\n  output = {}\n", in_ninja(executable), job.backend,
                          in_build, implicit, command_line(inputs), command_line({executable.string()}));
    built[job.name].executable = executable;
  }

  const fs::path file = folder / "build.ninja";
  std::ofstream(file, std::ios::binary) << rules << builds;
  CommandOptions options;
  options.folder = toolchain.root;
  const CommandResult result = run_command({toolchain.ninja, "-f", file.string(), "-k", "0"}, options);
  for (const WorkerJob& job : jobs) {
    WorkerBuilt& worker = built[job.name];
    // After a failure an executable of before may still lie there: ninja knows whether it is up to date.
    worker.ok = result.exit_code == 0 ||
                run_command({toolchain.ninja, "-f", file.string(), "-n", worker.executable.string()}, options)
                        .output.find("no work to do") != std::string::npos;
    for (const fs::path& object : objects_of[job.name]) worker.log += contents(object.string() + ".log");
    if (!worker.ok && worker.log.empty()) worker.log = contents(worker.executable.string() + ".log");
    if (!worker.ok && worker.log.empty()) worker.log = result.output;
  }
  return built;
}

void build_targets(const Toolchain& toolchain, const std::vector<std::string>& targets) {
  const BuildLock lock(toolchain.build_folder);
  std::vector<std::string> argv{toolchain.cmake, "--build", toolchain.build_folder.string(), "--target"};
  argv.insert(argv.end(), targets.begin(), targets.end());
  const CommandResult result = run_command(argv);
  if (result.exit_code == 0) return;
  std::string end = result.output;
  if (end.size() > 4000) end = "…" + end.substr(end.size() - 4000);
  throw std::runtime_error("the book's own code did not build:\n" + end);
}

}  // namespace workbook::worker
