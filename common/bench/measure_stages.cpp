// Times the stages, on a GPU or, without one, on the CPU, and counts the bytes that kernels request, on the simulator.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "common/attention/element.hpp"
#include "common/attention/inputs.hpp"
#include "common/bench/check.hpp"
#include "common/bench/measurement.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/description.hpp"
#include "common/worker/share_cores.hpp"

namespace workbook::bench {
namespace {

using book::Chapter;

constexpr std::size_t kMostRuns = 50;                           // timed calls of one shape
constexpr int kRunsOnCpu = 4;                                   // the first one warms up
constexpr std::array<std::int64_t, 3> kCounted{256, 512, 768};  // N at which the simulator counts: whole tiles
constexpr auto kCpuMemory = std::uint64_t(1) << 46;             // bytes of address space: effectively unlimited

/// Bytes that the kernels request for one K/V head, and the least that they must move.
struct Traffic {
  double requested = 0, unique = 0;
};
Traffic traffic_of(const worker::Reply& reply) {
  constexpr double sector = 32;
  return {reply.read_bytes() + reply.written_bytes() + sector * reply.counter("global.atomic_sectors"),
          sector * (reply.counter("global.unique_read_sectors") + reply.counter("global.unique_written_sectors"))};
}

/// Traffic at the counted N. For full tiles it is a quadratic polynomial in N, so three values determine it.
using CountedTraffic = std::array<Traffic, kCounted.size()>;
Traffic traffic_at(const CountedTraffic& counted, std::int64_t N) {
  std::array<std::pair<double, double>, kCounted.size()> requested, unique;
  for (std::size_t i = 0; i < kCounted.size(); ++i) {
    requested[i] = {double(kCounted[i]), counted[i].requested};
    unique[i] = {double(kCounted[i]), counted[i].unique};
  }
  return {parabola(requested, double(N)), parabola(unique, double(N))};
}

/// The bytes that the kernels of each chapter request. The simulator counts all of them on all cores before the timing.
/// Counting during the timing would slow the launches down, and counting between the timings would leave the GPU idle.
class TrafficCounts {
 public:
  explicit TrafficCounts(Measurement& measurement) {
    if (!measurement.counts) return;
    for (const Chapter* chapter : measurement.chapters)
      for (const std::string& pass : measurement.passes_of(*chapter))
        if (is_counted(measurement, *chapter, pass)) add_all(measurement, *chapter, pass);
    measurement.workspace.progress("counting requested bytes on the simulator");
    std::vector<Count*> all;
    for (auto& [key, count] : counts_) all.push_back(&count);
    worker::share_cores(all.size(), [&](std::size_t i) { count(measurement, *all[i]); });
    for (const Count* count : all)
      if (!count->failure.empty())
        measurement.skip(fmt::format("bytes requested by {}: {}", count->chapter->name(), count->failure));
  }

  /// The traffic at this shape; nothing if unknown.
  std::optional<Traffic> at(const Chapter& chapter, const Shape& shape) const {
    const auto found = counts_.find(key_of(chapter, shape));
    if (found == counts_.end() || !found->second.counted || !is_whole(shape)) return std::nullopt;
    Traffic all = traffic_at(*found->second.counted, shape.N());
    all.requested *= double(shape.B() * shape.Hkv());
    all.unique *= double(shape.B() * shape.Hkv());
    return all;
  }

 private:
  using Key = std::tuple<int, std::string, Mask::Kind, std::int64_t>;
  struct Count {
    const Chapter* chapter;
    Shape shape;
    std::optional<CountedTraffic> counted;
    std::string failure;
  };

  static Key key_of(const Chapter& chapter, const Shape& shape) {
    return {chapter.number, shape.pass, shape.mask.kind, shape.d()};
  }
  static bool is_whole(const Shape& shape) { return shape.N() % kCounted[0] == 0; }
  /// Counts of one head are multiplied by the heads. With few queries, a stage may divide the heads' keys differently
  /// for each number of heads (split-KV), so these calls are not counted.
  static bool is_counted(const Measurement& m, const Chapter& chapter, const std::string& pass) {
    return m.request.queries == 0 && m.wants_pass(pass) && m.is_wanted(chapter, Backend::cuda) &&
           m.is_wanted(chapter, Backend::sim) && m.built_stage(chapter, Backend::sim).ok;
  }

  void add_all(const Measurement& m, const Chapter& chapter, const std::string& pass) {
    for (const Shape& shape : m.gpu_shapes(pass, chapter.masks))
      if (is_whole(shape) && chapter.does_not_do(shape, Backend::cuda).empty())
        counts_.try_emplace(key_of(chapter, shape), Count{&chapter, shape, {}, ""});
  }

  static void count(const Measurement& m, Count& to) {
    worker::Worker worker(m.built_stage(*to.chapter, Backend::sim).executable, simulator_limits());
    const Shape& s = to.shape;
    Shape shape = m.requested_shape(shape_of(s.pass, s.mask, 1, m.request.group, s.N(), s.d()));
    CountedTraffic counted;
    try {
      for (std::size_t i = 0; i < kCounted.size(); ++i) {
        shape.shape.Nk = kCounted[i];
        if (m.request.queries == 0) shape.shape.Nq = shape.N();
        worker::Call call = bench_call(shape);
        counted[i] = traffic_of(worker.call(call.output<double>("seconds", 1)));
      }
      to.counted = counted;
    } catch (const worker::Failure& failure) {
      to.failure = failure.what();
    }
  }

  std::map<Key, Count> counts_;
};

/// Checks the results and stores in the point what is wrong with them.
bool is_right(const worker::Reply& reply, Point& p) {
  const std::string wrong = what_is_wrong(reply, p);
  if (wrong.empty()) return true;
  p.result = "wrong";
  p.message = wrong;
  return false;
}

/// Whether the worker contains this version of the stage.
bool has_version(Measurement& m, worker::Worker& worker, const Point& p, const Version& version) {
  if (version.numbers.empty()) return true;
  const worker::WorkerDescription all = worker::describe([&](const worker::Call& call) { return worker.call(call); });
  const worker::StageDescription* stage = all.find(p.shape.pass, p.element);
  const bool found = stage != nullptr && std::ranges::any_of(stage->variants, [&](const auto& variant) {
                       const auto number = version.numbers.find(variant.number);
                       return number != version.numbers.end() && number->second == variant.value;
                     });
  m.found_variant = m.found_variant || found;
  return found;
}

/// Times one version at one shape; `worker`: the chapter's, or none yet. False if other shapes would fail in the same
/// way.
bool time_on_gpu(Measurement& m, const TrafficCounts& traffic, const Chapter& chapter, const Shape& shape,
                 const Version& version, std::optional<worker::Worker>& worker) {
  const worker::WorkerBuilt& built = m.built_stage(chapter, Backend::cuda);
  Point p = m.point_of(chapter, Backend::cuda, shape, version);
  if (!built.ok) {
    take_compile_error(p, built);
    m.results.points.push_back(std::move(p));
    return true;
  }
  m.workspace.progress(
      fmt::format("{}, {}, d = {}, N = {}", p.name, pass_text(shape.pass, shape.mask), shape.d(), shape.N()));
  if (!worker) worker.emplace(built.executable, gpu_limits());
  if (!has_version(m, *worker, p, version)) return true;
  if (!time_point(m, *worker, chapter, p, version.numbers)) worker.reset();
  const auto counted_traffic = version.numbers.empty() ? traffic.at(chapter, shape) : std::nullopt;
  if (counted_traffic) {
    p.requested_bytes = counted_traffic->requested;
    p.unique_bytes = counted_traffic->unique;
  }
  const bool useless = p.result == "not timed" || p.result == "todo";
  m.results.points.push_back(std::move(p));
  return !useless;
}

void time_on_gpu(Measurement& m, const TrafficCounts& traffic, const Chapter& chapter, const std::string& pass) {
  std::optional<worker::Worker> worker;
  for (const Shape& shape : m.gpu_shapes(pass, chapter.masks)) {
    if (!m.serves(chapter, shape, Backend::cuda)) return;
    for (const Version& version : m.versions_of(chapter, Backend::cuda)) {
      if (!time_on_gpu(m, traffic, chapter, shape, version, worker)) return;  // every other shape would fail too
    }
  }
}

void time_on_cpu(const Chapter& chapter, const std::filesystem::path& executable, Point& p) {
  worker::Limits limits = simulator_limits();
  limits.memory = kCpuMemory;
  worker::Worker worker(executable, limits);
  InputOptions options;
  options.shape = p.shape.shape;
  options.mask = p.shape.mask;
  const EncodedProblem problem = encoded(make_input("normal", options), p.element);
  std::vector<double> seconds;
  try {
    for (int run = 0; run < kRunsOnCpu; ++run) {
      const worker::AttentionResult result =
          worker::forward(problem, {}, [&](const worker::Call& call) { return worker.call(call); });
      if (run > 0) seconds.push_back(result.reply.seconds);
      if (result.reply.extra_bytes >= 0) p.extra_bytes = double(result.reply.extra_bytes);
    }
    p.times = summary(seconds);
  } catch (const worker::Failure& failure) {
    take_failure(p, chapter, failure);
  }
}

void run_on_simulator(const Chapter& chapter, worker::Worker& worker, const Version& version, Point& p) {
  worker::Call call = bench_call(chapter, p);
  for (const auto& [name, number] : version.numbers) call.number(name, number);
  call.output<double>("seconds", 1);
  add_checked_outputs(call, p.shape);
  try {
    const worker::Reply reply = worker.call(call);
    if (!is_right(reply, p)) return;
    p.times = summary({reply.seconds});
    if (reply.extra_bytes >= 0) p.extra_bytes = double(reply.extra_bytes);
    if (!reply.counters.empty()) {
      const Traffic traffic = traffic_of(reply);
      p.requested_bytes = traffic.requested;
      p.unique_bytes = traffic.unique;
    }
  } catch (const worker::Failure& failure) {
    take_failure(p, chapter, failure);
  }
}

/// The shapes that are timed without a GPU: one K/V head and, on the simulator, one short length.
std::vector<Shape> shapes_without_gpu(const Measurement& m, const Chapter& chapter, Backend backend) {
  std::vector<std::int64_t> lengths = m.lengths();
  if (backend == Backend::sim) lengths = {std::min(*std::min_element(lengths.begin(), lengths.end()), kCounted[0])};
  std::vector<Shape> shapes;
  for (const std::int64_t d : m.request.head_dims) {
    for (const Mask& mask : m.masks()) {
      if (!chapter.does(mask)) continue;
      for (const std::int64_t N : lengths)
        shapes.push_back(m.requested_shape(shape_of(chapter.pass, mask, 1, m.request.group, N, d)));
    }
  }
  return shapes;
}

}  // namespace

bool time_point(const Measurement& m, worker::Worker& worker, const Chapter& chapter, Point& p,
                const std::map<std::string, double>& numbers) {
  worker::Call call = bench_call(chapter, p);
  call.number("budget", m.request.budget).output<double>("seconds", kMostRuns);
  for (const auto& [name, number] : numbers) call.number(name, number);
  add_checked_outputs(call, p.shape);
  try {
    const worker::Reply reply = worker.call(call);
    if (!is_right(reply, p)) return true;
    p.times = summary(times_of(reply));
    if (reply.extra_bytes >= 0) p.extra_bytes = double(reply.extra_bytes);
  } catch (const worker::Failure& failure) {
    take_failure(p, chapter, failure);
    return p.result == "out of memory" || p.result == "refused";
  }
  return true;
}

void time_stages_on_gpu(Measurement& m) {
  const TrafficCounts traffic(m);
  for (const Chapter* chapter : m.chapters) {
    if (!m.is_wanted(*chapter, Backend::cuda)) continue;
    for (const std::string& pass : m.passes_of(*chapter)) {
      if (m.wants_pass(pass)) time_on_gpu(m, traffic, *chapter, pass);
    }
  }
}

void time_stages_without_gpu(Measurement& m) {
  const auto time = [&](const Chapter& chapter, Backend backend, const Shape& shape, const Version& version) {
    const worker::WorkerBuilt& built = m.built_stage(chapter, backend);
    Point p = m.point_of(chapter, backend, shape, version);
    m.workspace.progress(fmt::format("{} on {}, d = {}, N = {}", p.name, name(backend), shape.d(), shape.N()));
    if (!built.ok) {
      take_compile_error(p, built);
    } else if (backend == Backend::cpu) {
      time_on_cpu(chapter, built.executable, p);
    } else {
      worker::Worker worker(built.executable, simulator_limits());
      if (!has_version(m, worker, p, version)) return;
      run_on_simulator(chapter, worker, version, p);
    }
    m.results.points.push_back(std::move(p));
  };
  for (const Chapter* chapter : m.chapters) {
    if (!m.wants_pass(chapter->pass)) continue;
    for (const Backend backend : m.backends_of(*chapter)) {
      for (const Shape& shape : shapes_without_gpu(m, *chapter, backend)) {
        if (!m.serves(*chapter, shape, backend)) continue;
        for (const Version& version : m.versions_of(*chapter, backend)) time(*chapter, backend, shape, version);
      }
    }
  }
}

}  // namespace workbook::bench
