// Nsight Compute's counters of the stages that were timed, at one length.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "common/bench/measurement.hpp"
#include "common/bench/profile.hpp"
#include "common/book/files.hpp"
#include "common/worker/command.hpp"

namespace workbook::bench {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kLongest = 4096;  // N; longer sequences take minutes under the profiler

std::int64_t profiled_length(const Measurement& m) {
  const std::vector<std::int64_t> all = m.lengths();
  std::int64_t best = *std::min_element(all.begin(), all.end());
  for (const std::int64_t N : all) {
    if (N <= kLongest) best = std::max(best, N);
  }
  return best;
}

/// The profiler's output for one call.
std::string profiled(Measurement& m, const Point& p) {
  const fs::path log = m.workspace.toolchain.build_folder / fmt::format("bench_ncu.{}.csv", ::getpid());
  {
    worker::Limits limits = gpu_limits();
    limits.prefix = profiler_command(log);
    limits.prefix.front() = worker::find_program("ncu").string();  // the prefix is not searched in PATH
    limits.patience = std::chrono::duration<double>(60);
    limits.printed = std::uint64_t(1) << 30;
    const book::Chapter& chapter = m.workspace.book.chapter(p.name);
    worker::Worker worker(m.built_stage(chapter, Backend::cuda).executable, limits);
    worker::Call call = bench_call(chapter, p);
    call.number("profile", 1).output<double>("seconds", 1);
    try {
      worker.call(call);
    } catch (const worker::Failure& failure) {
      m.skip(fmt::format("--profile, {}: {}", p.name, failure.what()));
    }
  }  // the worker ends here, and the profiler writes its report
  const std::string text = fs::exists(log) ? book::read_file(log) : "";
  std::error_code ignored;
  fs::remove(log, ignored);
  return text;
}

}  // namespace

void profile_stages(Measurement& m) {
  if (!m.gpu || worker::find_program("ncu").empty()) return;
  const auto& chapters = m.workspace.book.chapters;
  for (Point& p : m.results.points) {
    if (std::ranges::count(chapters, p.name, &book::Chapter::name) == 0) continue;  // an additional version of a stage
    if (p.kind != "stage" || p.backend != Backend::cuda || !p.ok() || p.shape.N() != profiled_length(m)) continue;
    m.workspace.progress(fmt::format("ncu: {}, d = {}", p.name, p.shape.d()));
    const std::string text = profiled(m, p);
    p.profile = profiled_metrics(text);
    if (p.profile.empty()) {
      m.skip(fmt::format("--profile, {}: no metrics; ncu said: {}", p.name, text.substr(0, 2000)));
      return;
    }
  }
}

}  // namespace workbook::bench
