#include "common/bench/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <set>
#include <sstream>

#include "common/attention/error.hpp"
#include "common/bench/measurement.hpp"
#include "common/book/files.hpp"
#include "common/worker/command.hpp"

namespace workbook::bench {
namespace {

using book::Chapter;

/// The text after ": " in the first line of a file that begins with `start`; empty if there is none.
std::string line_with(const std::string& file, const std::string& start) {
  std::istringstream lines;
  try {
    lines.str(book::read_file(file));
  } catch (const std::runtime_error&) {
    return "";
  }
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start) && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  }
  return "";
}

void describe_machine(Measurement& m) {
  std::map<std::string, std::string>& about = m.results.environment;
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  about["date"] = date;
  about["command"] = m.request.command;
  about["workbook"] = m.workspace.toolchain.version;
  about["host compiler"] = m.workspace.toolchain.compiler_id;
  if (const std::string cpu = line_with("/proc/cpuinfo", "model name"); !cpu.empty()) about["CPU"] = cpu;
  const std::string root = m.workspace.book.root.string();
  const std::string commit = output_of({"git", "-C", root, "rev-parse", "--short=12", "HEAD"});
  if (!commit.empty()) {
    const std::string changed = output_of({"git", "-C", root, "status", "--porcelain", "--untracked-files=no"});
    about["git commit"] = commit + (changed.empty() ? "" : ", with changes");
  }
}

void say_what_is_missing(Measurement& m) {
  const worker::Toolchain& toolchain = m.workspace.toolchain;
  const auto any = [&](Backend backend) {
    return std::any_of(m.chapters.begin(), m.chapters.end(), [&](const Chapter* c) { return c->runs_on(backend); });
  };
  if (m.request.steps && !m.gpu) m.skip("--steps: the steps of a chapter are timed on a GPU only");
  if (m.gpu) {
    for (const Chapter* chapter : m.chapters) {
      if (!chapter->runs_on(Backend::cuda)) m.skip(fmt::format("{} runs on the CPU only", chapter->name()));
    }
  } else {
    const std::string why = worker::gpu_present() ? toolchain.why_not(Backend::cuda) : "this machine has no GPU";
    m.skip("times on a GPU, the device's limits, and shares of them: " + why);
    if (!toolchain.can_build(Backend::sim) && any(Backend::sim))
      m.skip("kernels on the simulator: " + toolchain.why_not(Backend::sim));
  }
  if (any(Backend::sim) && toolchain.can_build(Backend::sim) && !m.counts)
    m.skip("bytes requested by kernels: the simulator does not count here (" + toolchain.simulator + ")");
  if (m.request.profile && !m.gpu) m.skip("--profile: the profiler needs a GPU");
  if (m.request.profile && m.gpu && worker::find_program("ncu").empty())
    m.skip("--profile: Nsight Compute (ncu) was not found in PATH");
}

constexpr const char* several_gpus = "several GPUs";  // Chapter::use

}  // namespace

std::vector<const Chapter*> wanted_chapters(const judge::Workspace& workspace, const MeasureRequest& request) {
  std::set<int> named;
  for (const std::string& which : request.chapters) {
    try {
      const Chapter& chapter = workspace.book.chapter(which);
      if (chapter.use == several_gpus)
        fail_input(
            "bench {}: a call of this chapter also distributes its tensors to the ranks, so its time is not that "
            "of attention; allowed: another chapter",
            which);
      named.insert(chapter.number);
    } catch (const book::ManifestError& error) {
      fail_input("bench {}: {}", which, error.what());
    }
  }
  std::vector<const Chapter*> chapters;
  for (const Chapter& chapter : workspace.book.chapters) {
    const bool wanted = named.empty()  ? !request.decoding || chapter.use == "decoding"
                        : request.only ? named.contains(chapter.number)
                                       : chapter.number <= *named.rbegin();
    if (wanted && chapter.use != several_gpus) chapters.push_back(&chapter);
  }
  return chapters;
}

Results measure(const judge::Workspace& workspace, const MeasureRequest& request) {
  Measurement measurement(workspace, request);
  describe_machine(measurement);
  say_what_is_missing(measurement);
  measurement.build();
  if (measurement.gpu) {
    measure_device(measurement);
    time_stages_on_gpu(measurement);
    time_steps(measurement);
  } else {
    time_stages_without_gpu(measurement);
  }
  if (!request.numbers.empty() && !measurement.found_variant)
    measurement.skip("--set: none of these stages has that variant");
  if (request.peers || !request.flash_attention_3.empty()) time_peers(measurement);
  if (request.profile) profile_stages(measurement);
  workspace.progress("");
  return std::move(measurement.results);
}

}  // namespace workbook::bench
