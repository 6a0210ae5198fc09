#include "common/judge/counted.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "common/attention/element.hpp"
#include "common/attention/inputs.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/worker.hpp"

namespace workbook::judge {
namespace {

using book::Chapter;
using Counters = std::map<std::string, double>;

constexpr std::int64_t kLength = 256, kHeadDim = 64;  // several tiles, and it takes less than a second
constexpr std::uint64_t kSeed = 1;

constexpr std::pair<const char*, const char*> kShown[] = {
    {"global.load_bytes", "bytes read from device memory"},
    {"global.async_bytes", "bytes copied by cp.async"},
    {"global.store_bytes", "bytes written to device memory"},
    {"global.bulk_load_bytes", "bytes loaded by TMA"},
    {"global.bulk_store_bytes", "bytes stored by TMA"},
    {"global.bulk_reduce_bytes", "bytes added by TMA"},
    {"global.load_requests", "load requests to device memory"},
    {"global.store_requests", "store requests to device memory"},
    {"global.load_sectors", "32-byte sectors read from device memory"},
    {"global.store_sectors", "32-byte sectors written to device memory"},
    {"shared.load_instructions", "loads from shared memory"},
    {"shared.store_instructions", "stores to shared memory"},
    {"shared.matrix_loads", "LDSM: matrix fragments loaded from shared memory"},
    {"shared.load_wavefronts", "wavefronts of shared loads"},
    {"shared.store_wavefronts", "wavefronts of shared stores"},
    {"tensor_instructions", "tensor-core instructions"},
    {"wgmma_instructions", "wgmma instructions, counted once per warp"},
    {"block_barriers", "block-wide barriers (__syncthreads)"},
    {"mbarrier_waits", "mbarrier waits"},
    {"named_barriers", "named barriers"},
    {"warp_barriers", "warp barriers (__syncwarp)"},
    {"shuffles", "shuffles"},
};

Counters count_pass(const Chapter& chapter, const std::string& pass, worker::Worker& worker) {
  const auto send = [&](const worker::Call& call) { return worker.call(call); };
  const Element element = chapter.element_on(Backend::sim);
  const Problem problem = rounded_to(
      make_input("normal", {{1, 1, 1, kLength, kLength, kHeadDim}, chapter.does(Mask::causal), 0, kSeed}), element);
  if (pass != "backward") return worker::forward(encoded(problem, element), {}, send).reply.counters;
  Tensor<float> dO(problem.Q.sizes);
  dO.values = normal_values(dO.values.size(), kSeed);
  const worker::EncodedBackward given = encoded(worker::backward_problem(problem, dO, element), element);
  return worker::backward("backward", given, element, {}, send).reply.counters;
}

/// The sum over all passes of the chapter.
Counters count_stage(const Chapter& chapter, const worker::WorkerBuilt& built) {
  worker::Worker worker(built.executable);
  Counters sums;
  for (const std::string& pass : chapter.passes())
    for (const auto& [name, count] : count_pass(chapter, pass, worker)) sums[name] += count;
  return sums;
}

}  // namespace

Counted count_beside_solution(const Workspace& workspace, const Chapter& chapter, const std::string& exercise) {
  if (!chapter.runs_on(Backend::sim) || !workspace.toolchain.counts_on(Backend::sim)) return {};
  PlanRequest request;
  request.backend = Backend::sim;
  request.exercise = exercise;
  Plan plan = make_plan(workspace, chapter, readers_tree(workspace, chapter), request);
  const std::string yours = plan.exercises.at(exercise).worker;
  const bool on_host = std::filesystem::path(plan.regions.at(exercise).file).extension() == ".cpp";
  if (yours.empty() || on_host || !plan.unavailable.empty()) return {};
  worker::WorkerJob solution = whole_job(workspace, chapter, solutions_tree(workspace, chapter), Backend::sim);
  const std::string book = solution.name;
  std::map<std::string, worker::WorkerJob> jobs{{yours, plan.jobs.at(yours)}};
  jobs.try_emplace(book, std::move(solution));
  plan.jobs = std::move(jobs);  // neither the whole chapter nor the previous one
  worker::build_targets(workspace.toolchain, worker_targets(workspace, chapter));
  const Built built = build_plans(workspace, {plan});
  if (!built.at(yours).ok || !built.at(book).ok) return {};
  Counted counted;
  try {
    const Counters mine = count_stage(chapter, built.at(yours));
    const Counters theirs = count_stage(chapter, built.at(book));
    const auto value = [](const Counters& counters, const char* name) {
      const auto found = counters.find(name);
      return found == counters.end() ? 0 : found->second;
    };
    for (const auto& [name, meaning] : kShown) {
      if (value(mine, name) != value(theirs, name))
        counted.differences.push_back({name, meaning, value(mine, name), value(theirs, name)});
    }
  } catch (const worker::Failure&) {
    return {};
  }
  counted.problem = fmt::format("N={}, d={}, one head", kLength, kHeadDim);
  return counted;
}

}  // namespace workbook::judge
