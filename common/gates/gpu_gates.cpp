// The chapters on other GPUs than the one that is here: under the limits of their classes, and compiled for them.
#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <regex>
#include <span>
#include <sstream>

#include "common/book/files.hpp"
#include "common/gates/groups.hpp"
#include "common/gates/variants.hpp"
#include "common/judge/default_kernels.hpp"
#include "common/worker/share_cores.hpp"

namespace workbook::gates {
namespace {

using book::Chapter;
using judge::Result, judge::Verdict, judge::Workspace;

/// The smallest GPUs that readers have; and others. (The simulator is an H100 unless told otherwise.)
constexpr const char* kSmallest[] = {"t4", "rtx4090"};
constexpr const char* kClasses[] = {"t4", "rtx4090", "a100", "h100", "b200"};
/// The share of a chapter's tests that may be skipped on a GPU that has its instructions.
constexpr double kMostSkipped = 0.1;

/// Processes that are started meanwhile take on a GPU's limits.
class UnderClass {
 public:
  explicit UnderClass(const std::string& name) {
    if (const char* before = std::getenv(simt::kGpuVariable)) before_ = before;
    worker::simulate_gpu(name);
  }
  ~UnderClass() {
    if (before_.empty())
      ::unsetenv(simt::kGpuVariable);
    else
      ::setenv(simt::kGpuVariable, before_.c_str(), 1);
  }
  UnderClass(const UnderClass&) = delete;
  UnderClass& operator=(const UnderClass&) = delete;

 private:
  std::string before_;
};

// ---- architectures ----

constexpr int kArchitectures[] = {75, 80, 86, 89, 90, 100, 120};

/// What ptxas says of a kernel for one architecture.
struct Compiled {
  int registers = 0, spilled = 0;  ///< spilled: bytes of stores to local memory
};
/// By kernel, "08_registers: attention<128, 128, 64, 4>", and architecture.
using Table = std::map<std::string, std::map<int, Compiled>>;

/// "_ZN4ch08…attentionILi128E…" -> "attention<128, 128, 64, 4>"; empty if it is none of the chapter's namespace.
std::string kernel_name(const std::string& mangled, const Chapter& chapter) {
  int failed = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &failed),
                                                    std::free);
  if (failed != 0) return "";
  std::string name = text.get();
  name = name.substr(0, name.find(">(") == std::string::npos ? name.find('(', name.rfind("::")) : name.find(">(") + 1);
  const std::string space = fmt::format("ch{:02}::", chapter.number);
  if (name.find(space) == std::string::npos) return "";
  const std::size_t arguments = name.find('<');
  const std::size_t colons = name.rfind("::", arguments);
  return name.substr(colons == std::string::npos ? 0 : colons + 2);
}

/// Reads what `-Xptxas -v` printed.
void take_log(const std::string& log, const Chapter& chapter, int architecture, Table& table) {
  static const std::regex entry("entry function '([^']+)'"), spill("([0-9]+) bytes spill stores"),
      used("Used ([0-9]+) registers");
  std::istringstream lines(log);
  std::smatch match;
  std::string kernel;
  int spilled = 0;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, entry)) kernel = kernel_name(match[1], chapter);
    if (std::regex_search(line, match, spill)) spilled = std::stoi(match[1]);
    if (!std::regex_search(line, match, used) || kernel.empty()) continue;
    Compiled& compiled = table[chapter.name() + ": " + kernel][architecture];
    compiled.registers = std::max(compiled.registers, std::stoi(match[1]));  // fp16 and bf16 have one name
    compiled.spilled = std::max(compiled.spilled, spilled);
    kernel.clear();
  }
}

/// The toolchain with nvcc compiling for this architecture, into a folder of its own.
worker::Toolchain for_architecture(const worker::Toolchain& toolchain, int architecture) {
  worker::Toolchain other = toolchain;
  other.build_folder = toolchain.build_folder / "architectures" / fmt::format("sm_{}", architecture);
  std::filesystem::create_directories(other.build_folder);
  worker::Toolchain::Rules& cuda = other.backends.at(Backend::cuda);
  for (std::string& word : cuda.kernels)
    if (word.starts_with("-arch=")) word = fmt::format("-arch=sm_{}", architecture);
  cuda.kernels.insert(cuda.kernels.end(), {"-Xptxas", "-v"});
  cuda.sources.clear();
  cuda.link = {"true"};  // nothing is linked: no such GPU is here to run it
  return other;
}

/// What a chapter's stages need of a GPU, as they say it.
struct Needs {
  int compute = 0;    ///< the least compute capability that has the instructions of all of them
  bool only = false;  ///< no other has them

  bool met_by(const simt::GpuClass& gpu) const { return only ? gpu.compute == compute : gpu.compute >= compute; }
};
std::map<const Chapter*, Needs> needs_of(const Workspace& workspace, const std::vector<const Chapter*>& chapters) {
  std::map<const Chapter*, Needs> needs;
  for (const judge::DefaultKernel& kernel : default_kernels(workspace, chapters)) {
    Needs& need = needs[kernel.chapter];
    need.compute = std::max(need.compute, kernel.compute);
    need.only = need.only || kernel.compute_only;
  }
  return needs;
}

/// Whether "sm_90a" is the architecture with this number.
bool is_for(const std::string& architecture, int number) {
  return architecture.substr(0, architecture.size() - 1) == fmt::format("sm_{}", number);
}

/// What can be compiled for one architecture, compiled.
struct ForOne {
  int architecture;
  std::vector<const Chapter*> chapters;
  std::vector<worker::WorkerBuilt> built;  ///< one for each
  std::vector<std::string> left_out;       ///< the others, in a sentence
};

void compile_all(const Workspace& workspace, const std::vector<const Chapter*>& chapters,
                 const std::map<const Chapter*, Needs>& needs, ForOne& one) {
  std::vector<worker::WorkerJob> jobs;
  for (const Chapter* chapter : chapters) {
    if (!chapter->runs_on(Backend::cuda)) continue;
    if (!chapter->architecture.empty() && !is_for(chapter->architecture, one.architecture)) {
      one.left_out.push_back(fmt::format("{} is for {} alone, not compiled for sm_{}", chapter->name(),
                                         chapter->architecture, one.architecture));
      continue;
    }
    const auto need = needs.find(chapter);
    if (need != needs.end() && need->second.compute > one.architecture) {
      one.left_out.push_back(fmt::format("{} needs sm_{}, not compiled for sm_{}", chapter->name(),
                                         need->second.compute, one.architecture));
      continue;
    }
    one.chapters.push_back(chapter);
    jobs.push_back(whole_job(workspace, *chapter, solutions_tree(workspace, *chapter), Backend::cuda));
    std::erase_if(jobs.back().books_sources, [](const std::filesystem::path& source) {
      return source.stem() == "stage" || source.stem() == "operations";  // no kernels of a chapter are there
    });
  }
  const auto built = build_workers(for_architecture(workspace.toolchain, one.architecture), jobs);
  for (const worker::WorkerJob& job : jobs) one.built.push_back(built.at(job.name));
}

/// As Markdown: a row for each kernel, registers and, after a plus, the bytes that are spilled.
std::string markdown(const Table& table) {
  std::string text = "| kernel |", line = "|---|";
  for (const int architecture : kArchitectures) text += fmt::format(" sm_{} |", architecture), line += "---|";
  text += "\n" + line + "\n";
  for (const auto& [kernel, row] : table) {
    text += fmt::format("| {} |", kernel);
    for (const int architecture : kArchitectures) {
      const auto found = row.find(architecture);
      if (found == row.end())
        text += " - |";
      else if (found->second.spilled == 0)
        text += fmt::format(" {} |", found->second.registers);
      else
        text += fmt::format(" {} + {} B |", found->second.registers, found->second.spilled);
    }
    text += "\n";
  }
  return text;
}

/// The tests of the chapters that a GPU has the instructions for, under its limits: none fails, and few are skipped.
/// Returns a line, and below it for each chapter with a skipped test the reason of the first.
std::string check_class(const Inspection& inspection, const std::string& name, const std::string& exercise,
                        const std::map<const Chapter*, Needs>& needs, Findings& findings) {
  const UnderClass under(name);
  std::vector<Variant> variants;
  for (const Chapter* chapter : inspection.chapters) {
    const auto need = needs.find(chapter);
    if (need == needs.end() || !need->second.met_by(simt::gpu_class(name))) continue;
    variants.push_back({chapter, solutions_tree(inspection.workspace, *chapter), {}});
    variants.back().request.backend = Backend::sim;
    variants.back().request.exercise = exercise;
  }
  const auto judge = [&](std::size_t, const VariantRun& ran, Findings& found) {
    const auto skipped = ran.run.count(Result::skipped);
    for (const Verdict& test : ran.run.tests) {
      if (test.result == Result::skipped) continue;
      found.expect(test.result == Result::passed,
                   fmt::format("{} under --gpu {}: {}", ran.run.chapter->name(), name, summary(test)));
    }
    found.skipped += int(skipped);
    found.expect(double(skipped) <= kMostSkipped * double(ran.run.tests.size()),
                 fmt::format("{} under --gpu {}: {} of {} tests are skipped", ran.run.chapter->name(), name, skipped,
                             ran.run.tests.size()));
  };
  std::size_t tests = 0, skipped = 0;
  std::string reasons;
  for (const auto& [compiled, log, plan, run] : run_variants(inspection, variants, judge, findings)) {
    tests += run.tests.size();
    skipped += std::size_t(run.count(Result::skipped));
    const auto first = std::ranges::find(run.tests, Result::skipped, &Verdict::result);
    if (first != run.tests.end()) reasons += fmt::format("\n      chapter {}: {}", run.chapter->number, first->message);
  }
  return fmt::format("{}: {} chapters, {} tests, {} skipped{}", name, variants.size(), tests, skipped, reasons);
}

void check_classes(Inspection& inspection, std::span<const char* const> names, const std::string& exercise,
                   Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  if (const std::string why = why_unavailable(workspace, Backend::sim); !why.empty()) {
    findings.skip_reason = why;
    return;
  }
  build_tests(workspace, inspection.chapters);
  const std::map<const Chapter*, Needs> needs = needs_of(workspace, inspection.chapters);
  std::vector<std::string> details;
  for (const char* name : names) details.push_back(check_class(inspection, name, exercise, needs, findings));
  findings.detail = fmt::format("{}", fmt::join(details, "\n    "));
}

}  // namespace

void check_gpu_classes(Inspection& inspection, Findings& findings) {
  check_classes(inspection, kSmallest, judge::kWhole, findings);  // each part is in one of them
}
void check_all_gpu_classes(Inspection& inspection, Findings& findings) {
  check_classes(inspection, kClasses, "", findings);
}

void check_architectures(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  if (!workspace.toolchain.can_build(Backend::cuda)) {
    findings.skip_reason = workspace.toolchain.why_not(Backend::cuda);
    return;
  }
  worker::build_targets(workspace.toolchain, workspace.toolchain.backends.at(Backend::cuda).targets);
  const std::map<const Chapter*, Needs> needs = needs_of(workspace, inspection.chapters);
  std::vector<ForOne> all;
  for (const int architecture : kArchitectures) all.push_back({architecture, {}, {}, {}});
  worker::share_cores(all.size(), [&](std::size_t i) { compile_all(workspace, inspection.chapters, needs, all[i]); });
  Table table;
  std::vector<std::string> left_out;
  for (ForOne& one : all) {
    for (std::size_t i = 0; i < one.chapters.size(); ++i) {
      const worker::WorkerBuilt& worker = one.built[i];
      findings.expect(worker.ok,
                      fmt::format("{} for sm_{}:\n{}", one.chapters[i]->name(), one.architecture, worker.log));
      take_log(worker.log, *one.chapters[i], one.architecture, table);
    }
    findings.skipped += int(one.left_out.size());
    left_out.insert(left_out.end(), one.left_out.begin(), one.left_out.end());
  }
  const std::filesystem::path file = workspace.toolchain.build_folder / "architectures" / "registers.md";
  book::write_file(file, markdown(table));
  int spilling = 0;
  for (const auto& [kernel, row] : table)
    spilling += std::ranges::any_of(row, [](const auto& each) { return each.second.spilled > 0; });
  findings.expect(!table.empty(), "nvcc said nothing of any kernel's registers");
  findings.detail =
      fmt::format("{} kernels, {} of them spill somewhere: {}", table.size(), spilling, workspace.shown(file));
  for (const std::string& each : left_out) findings.detail += "; " + each;
}

}  // namespace workbook::gates
