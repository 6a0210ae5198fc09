#include "common/judge/trace.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/attention/element.hpp"
#include "common/attention/inputs.hpp"
#include "common/book/progress.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/worker.hpp"

namespace workbook::judge {
namespace {

using book::Chapter;

constexpr std::uint64_t kMostMemory = std::uint64_t(1) << 46;  // bytes of address space: practically no limit

/// The location of an open exercise, "chapters/…:12"; empty if the reader's files do not contain it.
std::string location_of(const Workspace& workspace, const std::string& exercise) {
  const auto progress = book::load_progress(workspace.book);
  const auto found = progress.find(exercise);
  return found == progress.end() || found->second.line == 0
             ? ""
             : fmt::format("{}:{}", workspace.shown(found->second.file), found->second.line);
}

/// Calls the stage once, with a buffer for the record.
worker::Reply call_traced(worker::Worker& worker, const Chapter& chapter, const Problem& problem,
                          const TraceRequest& request) {
  std::map<std::string, double> numbers = request.numbers;
  numbers["trace"] = 1;
  if (request.Br > 0) numbers["Br"] = double(request.Br);
  if (request.Bc > 0) numbers["Bc"] = double(request.Bc);
  const Element own = chapter.element_on(Backend::sim), element = request.element.value_or(own);
  const std::string& pass = request.pass.empty() ? chapter.pass : request.pass;
  const std::string operation =
      request.operation.empty() ? worker::operation_for(pass, element, own) : request.operation;
  const auto send = [&](const worker::Call& call) {
    worker::Call with_record = call;
    with_record.output<std::uint8_t>("trace", kMostOfRecord);
    return worker.call(with_record);
  };
  if (pass != "backward") return worker::forward(encoded(problem, element), numbers, send, operation).reply;
  Tensor<float> dO(problem.Q.sizes);  // any values will do: the counters do not depend on them
  dO.values = normal_values(dO.values.size(), request.seed);
  const auto given = encoded(worker::backward_problem(problem, dO, element), element);
  return worker::backward(operation, given, element, numbers, send).reply;
}

}  // namespace

bool Traced::clean() const {
  return result == "ok" && trace.reports.empty() &&
         std::all_of(trace.launches.begin(), trace.launches.end(), [](const auto& l) { return l.reports.empty(); });
}

void require_counts(const Workspace& workspace) {
  if (!workspace.toolchain.can_build(Backend::sim)) {
    throw EnvironmentError("trace needs the simulator, which cannot run here: " +
                           workspace.toolchain.why_not(Backend::sim));
  }
  if (!workspace.toolchain.counts) {
    throw EnvironmentError("trace needs the simulator's counters, which are missing here: " +
                           workspace.toolchain.simulator);
  }
}

Traced run_traced(const Workspace& workspace, const Chapter& chapter, const Tree& tree, const Problem& problem,
                  const TraceRequest& request) {
  Traced traced;
  workspace.progress(fmt::format("building chapter {}", chapter.number));
  worker::build_targets(workspace.toolchain, workspace.toolchain.backends.at(Backend::sim).targets);
  const worker::WorkerJob job = whole_job(workspace, chapter, tree, Backend::sim);
  const worker::WorkerBuilt built = worker::build_workers(workspace.toolchain, {job}).at(job.name);
  if (!built.ok) {
    traced.result = "not compiled";
    traced.message = built.log;
    return traced;
  }
  workspace.progress(fmt::format("simulating chapter {}", chapter.number));
  worker::Limits limits;
  limits.time = worker::Limits::kLongest;
  limits.memory = kMostMemory;
  worker::Worker worker(built.executable, limits);
  try {
    const worker::Reply reply = call_traced(worker, chapter, problem, request);
    const std::vector<std::byte>& bytes = reply.outputs.at("trace");
    const auto end =
        std::find(bytes.begin(), bytes.end(), std::byte{0xFF});  // the initial byte of outputs; does not occur in UTF-8
    traced.trace = parse_trace({reinterpret_cast<const char*>(bytes.data()), std::size_t(end - bytes.begin())});
  } catch (const worker::Failure& failure) {
    traced.result = worker::name(failure.ending);
    traced.message = failure.what();
    if (failure.ending == worker::Ending::todo) {
      const std::string location = location_of(workspace, failure.todo);
      traced.message =
          fmt::format("exercise {} is still open{}{}", failure.todo, location.empty() ? "" : ": ", location);
    }
  }
  workspace.progress("");
  return traced;
}

std::int64_t tile_rows_taken(const Trace& trace, const std::string& tensor, std::int64_t requested) {
  std::int64_t took = 0;
  for (const TracedLaunch& launch : trace.launches) {
    const TracedTensor* found = launch.tensor(tensor);
    if (found == nullptr || !found->tiling) continue;
    took = found->tiling->tile_rows;
    if (took == requested) break;
  }
  return took;
}

}  // namespace workbook::judge
