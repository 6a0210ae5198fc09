// doctor: lists the tools found on this machine, the tools missing, and what cannot run without them.
#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include "common/cli/verbs.hpp"
#include "common/judge/default_kernels.hpp"
#include "common/judge/run.hpp"
#include "common/judge/trace_facts.hpp"
#include "common/worker/command.hpp"

namespace workbook::cli {
namespace {

struct Finding {
  std::string name, found;  ///< `found` is empty if the tool is missing
  std::string without;      ///< what cannot run without it
};

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

/// The first line of `program --version` that has a digit and is not a date; empty if the program is missing.
std::string version(const std::string& program, const std::string& flag = "--version") {
  if (worker::find_program(program).empty()) return "";
  std::istringstream lines(worker::run_command({program, flag}).output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Copyright") || line.starts_with("Built on")) continue;  // nvcc prints these first
    if (line.find_first_of("0123456789") != std::string::npos) return line;
  }
  return "found";
}

std::string gpu() {
  if (worker::find_program("nvidia-smi").empty()) return "";
  const auto result = worker::run_command({"nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"});
  return result.exit_code == 0 ? first_line(result.output) : "";
}

#ifdef WORKBOOK_HAS_LIBARCHIVE
constexpr const char* kLibarchive = "found";
#else
constexpr const char* kLibarchive = "";
#endif

/// What the simulator does on this machine; empty if something is missing.
std::string simulator(const Session& session) {
  if (!session.toolchain.can_build(Backend::sim) || !session.toolchain.counts) return "";
  return "runs kernels, counts their accesses and detects races";
}

/// How submissions can be isolated from this machine. `grade` verifies the isolation when it runs.
std::string isolation(const Session& session) {
  worker::build_targets(session.toolchain, {"workbook_isolate"});
  const std::filesystem::path program = session.toolchain.build_folder / "bin" / "workbook_isolate";
  if (!std::filesystem::exists(program)) return "";  // built without libseccomp
  const bool view = worker::run_command({program.string(), "view"}).exit_code == 0;
  if (::geteuid() != 0 && !view) return "";
  return fmt::format("libseccomp{}{}", ::geteuid() == 0 ? ", a separate user" : "",
                     view ? ", a separate root directory" : "");
}

/// The class of this machine's GPU; nothing without a GPU, or if it belongs to no class.
std::optional<simt::GpuClass> class_of_device() {
  if (worker::find_program("nvidia-smi").empty()) return std::nullopt;
  const auto result = worker::run_command({"nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"});
  const double capability = std::atof(result.output.c_str());
  for (const simt::GpuClass& each : simt::kGpuClasses)
    if (result.exit_code == 0 && each.compute == std::lround(10 * capability)) return each;
  return std::nullopt;
}

/// One line per chapter, pass, element type and d.
nlohmann::json kernels_json(const Session& session, const simt::GpuClass& gpu) {
  std::vector<const book::Chapter*> chapters;
  for (const book::Chapter& chapter : session.book.chapters) chapters.push_back(&chapter);
  session.progress("compiling the chapters' kernels");
  nlohmann::json lines = nlohmann::json::array();
  for (const judge::DefaultKernel& kernel : default_kernels(session, chapters)) {
    std::string text, tiles;
    for (const auto& [name, size] : kernel.sizes)
      tiles += fmt::format("{}{} = {}", tiles.empty() ? "" : ", ", name, size);
    if (kernel.compute > gpu.compute || (kernel.compute_only && kernel.compute != gpu.compute))
      text = fmt::format("does not run: needs compute capability {}.{}{}", kernel.compute / 10, kernel.compute % 10,
                         kernel.compute_only ? " exactly" : "");
    else if (kernel.sizes.empty())
      text = "does not run: none of its tile sizes fits in a thread block's shared memory";
    else
      text = judge::occupancy_text(gpu, kernel.threads, kernel.shared_bytes);
    lines.push_back({{"chapter", kernel.chapter->name()},
                     {"pass", kernel.pass},
                     {"element", kernel.element},
                     {"d", kernel.d},
                     {"tiles", tiles},
                     {"shared_bytes", kernel.shared_bytes},
                     {"occupancy", text}});
  }
  session.progress("");
  return lines;
}

void print_kernels(const nlohmann::json& kernels, const simt::GpuClass& gpu) {
  fmt::print("\nThread blocks of each chapter's kernels that fit on an SM of {} (registers may allow fewer):\n",
             gpu.title);
  std::string before;
  for (const auto& kernel : kernels) {
    const std::string stage =
        fmt::format("{}, {}, {}", kernel.at("chapter").get<std::string>(), kernel.at("pass").get<std::string>(),
                    kernel.at("element").get<std::string>());
    if (stage != before) fmt::print("  {}\n", stage);
    before = stage;
    fmt::print("    d = {:<4} {:<32} {}\n", kernel.at("d").get<int>(), kernel.at("tiles").get<std::string>(),
               kernel.at("occupancy").get<std::string>());
  }
}

/// The browser in which notes/site/test.mjs opens the pages, under any of its names.
std::string chromium() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    // Asking for the version starts the browser, and some browsers print other lines first.
    if (const auto program = worker::find_program(name); !program.empty()) return std::string(program);
  }
  return "";
}

std::string system_text() {
  utsname system{};
  ::uname(&system);
  return fmt::format("{} {} {}, {} cores", system.sysname, system.release, system.machine,
                     std::thread::hardware_concurrency());
}

}  // namespace

int doctor(const Session& session, const DoctorOptions& options) {
  const bool of_kernels = options.kernels || !options.gpu.empty();
  const std::string nvcc = session.toolchain.can_build(Backend::cuda)
                               ? version(session.toolchain.backends.at(Backend::cuda).kernels.at(0))
                               : "";
  const std::vector<Finding> needed{
      {"system", system_text(), ""},
      {"compiler", session.toolchain.compiler_id + " (" + session.toolchain.compiler + ")", ""},
      {"CMake", version(session.toolchain.cmake), ""},
      {"Ninja", version(session.toolchain.ninja), ""},
  };
  const std::vector<Finding> optional{
      {"gdb", version("gdb"), "test --debug (set WORKBOOK_DEBUGGER to use another debugger)"},
      {"clang-format", version("clang-format"), "check's gate \"format\" (needs version 14)"},
      {"clang++ 16 or newer", version(worker::find_clang("clang++").string()), "check --full with the second compiler"},
      {"clang-tidy 16 or newer", version(worker::find_clang("clang-tidy").string()),
       "check --full's gate \"clang-tidy\""},
      {"libarchive", kLibarchive, "archives in grade and release; folders still work (package libarchive-dev)"},
      {"isolation", isolation(session), "grade, except with --unsafe, which runs submissions with all of your rights"},
      {"xmllint", version("xmllint"), "the check of JUnit XML against its schema"},
      {"gnuplot", version("gnuplot"), "plots, for example of a class's points"},
      {"Node", version("node"), "site (the book as web pages) and pictures (18 or newer)"},
      {"npm", version("npm"), "site, which installs its packages with it"},
      {"Chromium", chromium(), "the tests of the pages in a browser"},
      {"git", version("git"), "nothing in the book; use it for your own work"},
      {"simulator", simulator(session),
       "kernels without a GPU, and their counters (" +
           (session.toolchain.can_build(Backend::sim) ? session.toolchain.simulator
                                                      : session.toolchain.why_not(Backend::sim)) +
           ")"},
      {"nvcc 12 or newer", session.toolchain.can_build(Backend::cuda) ? nvcc : "",
       "kernels on a GPU; the simulator runs all of them"},
      {"GPU", gpu(), "timings of kernels, and their tests on the cuda backend, which are skipped"},
  };
  nlohmann::json kernels = nlohmann::json::array();
  const std::optional<simt::GpuClass> device = options.gpu.empty() ? class_of_device() : std::nullopt;
  if (device) worker::simulate_gpu(std::string(device->name));  // selects the tile sizes of this GPU
  if (of_kernels) kernels = kernels_json(session, worker::simulated_gpu());
  if (session.json) {
    nlohmann::json document{{"chapters", session.book.chapters.size()},
                            {"found", nlohmann::json::object()},
                            {"missing", nlohmann::json::object()},
                            {"kernels", kernels}};
    for (const auto& list : {needed, optional}) {
      for (const Finding& finding : list) {
        if (finding.found.empty()) {
          document["missing"][finding.name] = finding.without;
        } else {
          document["found"][finding.name] = finding.found;
        }
      }
    }
    print_json(document);
    return kDone;
  }
  fmt::print("The FlashAttention Workbook {}, {} chapters, in {}\n\n", session.toolchain.version,
             session.book.chapters.size(), session.book.root.string());
  std::size_t width = 0;
  for (const auto& list : {needed, optional})
    for (const Finding& finding : list) width = std::max(width, finding.name.size());
  for (const auto& list : {needed, optional}) {
    for (const Finding& finding : list) {
      const bool found = !finding.found.empty();
      fmt::print("  {} {:<{}}  {}\n", session.colored(found ? "+" : "-", found ? "green" : "yellow"), finding.name,
                 width, found ? finding.found : "not found. Without it: " + finding.without);
    }
  }
  std::vector<std::string> runs, cannot;
  for (const book::Chapter& chapter : session.book.chapters) {
    std::vector<std::string>& list = session.toolchain.can_build(first_backend(session, chapter)) ? runs : cannot;
    list.push_back(std::to_string(chapter.number));
  }
  if (!runs.empty()) fmt::print("\nChapters that run here: {}.\n", fmt::join(runs, ", "));
  if (!cannot.empty()) fmt::print("Chapters that cannot run: {}; see the list above.\n", fmt::join(cannot, ", "));
  if (of_kernels) print_kernels(kernels, worker::simulated_gpu());
  fmt::print(
      "\nThe simulator does not model time, caches, occupancy, weak memory ordering, or tensor cores that truncate "
      "when they\nadd: see notes/simulator.md.\n");
  return kDone;
}

}  // namespace workbook::cli
