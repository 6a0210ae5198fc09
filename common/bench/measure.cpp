#include "common/bench/measure.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "common/attention/error.hpp"
#include "common/attention/inputs.hpp"
#include "common/bench/check.hpp"
#include "common/bench/profile.hpp"
#include "common/bench/steps.hpp"
#include "common/book/files.hpp"
#include "common/judge/run.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/command.hpp"
#include "common/worker/worker.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using bench::Point;
using bench::Results;
using book::Chapter;
using nlohmann::json;

constexpr double kProductSize = 8192;  // of the matrix product to compare with
constexpr std::size_t kMostRuns = 50;  // timed calls of one shape
// N at which the simulator counts: multiples of all tiles.
constexpr std::array<std::int64_t, 3> kCounted{256, 512, 768};

std::vector<bool> wanted_masks(const BenchOptions& options) {
  if (options.causal == "both") return {false, true};
  return {options.causal == "yes"};
}
bool wants_pass(const BenchOptions& options, const std::string& pass) {
  return options.pass == "both" || options.pass == pass;
}

/// What a chapter ends in; one that compiles others' kernels once more has theirs too.
std::vector<std::string> passes_of(const Session& session, const Chapter& chapter) {
  std::vector<std::string> passes{chapter.pass};
  for (const std::string& name : chapter.uses) {
    const std::string& pass = session.book.chapter(name).pass;
    if (std::find(passes.begin(), passes.end(), pass) == passes.end()) passes.push_back(pass);
  }
  return passes;
}

bool is_readers(const Session& session, const Chapter& chapter, const BenchOptions& options) {
  return options.own || !session.book.has_solutions(chapter);
}
worker::WorkerJob stage_job(const Session& session, const Chapter& chapter, Backend backend,
                            const BenchOptions& options) {
  const bool own = is_readers(session, chapter, options);
  return whole_job(session, chapter, own ? readers_tree(session, chapter) : solutions_tree(session, chapter), backend);
}

/// stdout of a command, without its last line end; empty if it is not here or fails.
std::string output_of(const std::vector<std::string>& argv) {
  if (worker::find_program(argv[0]).empty()) return "";
  const worker::CommandResult result = worker::run_command(argv);
  if (result.exit_code != 0) return "";
  std::string text = result.output;
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

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

void describe_machine(const Session& session, Results& results, const BenchOptions& options) {
  std::map<std::string, std::string>& about = results.environment;
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", std::gmtime(&now));
  about["date"] = date;
  about["command"] = options.command;
  about["workbook"] = session.toolchain.version;
  about["host compiler"] = session.toolchain.compiler_id;
  if (const std::string cpu = line_with("/proc/cpuinfo", "model name"); !cpu.empty()) about["CPU"] = cpu;
  const std::string commit = output_of({"git", "-C", session.book.root.string(), "rev-parse", "--short=12", "HEAD"});
  if (!commit.empty()) {
    const std::string changed =
        output_of({"git", "-C", session.book.root.string(), "status", "--porcelain", "--untracked-files=no"});
    about["git commit"] = commit + (changed.empty() ? "" : ", with changes");
  }
}

/// What nvidia-smi says of the first GPU: by its own names.
std::map<std::string, std::string> ask_gpu() {
  const std::vector<std::string> names{"name",       "driver_version", "clocks.sm",       "clocks.max.sm", "clocks.mem",
                                       "power.draw", "power.limit",    "temperature.gpu", "memory.total"};
  const std::string text = output_of(
      {"nvidia-smi", "--id=0", fmt::format("--query-gpu={}", fmt::join(names, ",")), "--format=csv,noheader"});
  std::map<std::string, std::string> values;
  std::istringstream cells(text);
  std::size_t i = 0;
  for (std::string cell; i < names.size() && std::getline(cells, cell, ',');) {
    cell.erase(0, cell.find_first_not_of(' '));
    values[names[i++]] = cell;
  }
  return values;
}

worker::Limits gpu_limits() {
  worker::Limits limits;
  limits.time = std::chrono::duration<double>(300);
  limits.memory = 0;  // CUDA reserves far more addresses than it uses
  return limits;
}

std::vector<double> times_of(const worker::Reply& reply) {
  std::vector<double> seconds = reply.output<double>("seconds");
  std::erase_if(seconds, [](double x) { return std::isnan(x); });
  return seconds;
}

worker::Call bench_call(const bench::Shape& s) {
  worker::Call call("bench");
  call.number("B", double(s.B)).number("H", double(s.H)).number("Hkv", double(s.H));
  call.number("Nq", double(s.N)).number("Nk", double(s.N)).number("d", double(s.d));
  call.number("scale", default_scale(s.d)).number("causal", s.causal);
  call.number("backward", s.pass == "backward");  // for a chapter that has both passes
  return call;
}

/// A failure as a point's result. A GPU without enough memory is a result of its own: what standard attention ends in.
void take_failure(Point& p, const Chapter& chapter, const worker::Failure& failure) {
  const std::string what = failure.what();
  p.message = what;
  if (what.find("cudaErrorMemoryAllocation") != std::string::npos) {
    p.result = "out of memory";
  } else if (failure.ending == worker::Ending::todo) {
    p.result = "todo";
    p.message = fmt::format("exercise {} is still open: ./workbook test {}", failure.todo, chapter.number);
  } else if (what.find("has no operation \"bench\"") != std::string::npos) {
    p.result = "not timed";
    p.message = fmt::format("{} has no operation that is timed", chapter.name());
  } else {
    p.result = worker::name(failure.ending);
  }
}

/// Bytes that one head's kernels ask for, and the least that they must move.
struct Traffic {
  double requested = 0, unique = 0;
};
Traffic traffic_of(const worker::Reply& reply) {
  const auto of = [&](const char* name) {
    const auto found = reply.counters.find(name);
    return found == reply.counters.end() ? 0.0 : found->second;
  };
  constexpr double sector = 32;
  return {of("global.load_bytes") + of("global.async_bytes") + of("global.store_bytes") +
              sector * of("global.atomic_sectors"),
          sector * (of("global.unique_read_sectors") + of("global.unique_written_sectors"))};
}

/// Traffic of one head at three N. For whole tiles it is a polynomial of the second degree in N, so three tell all.
using CountedTraffic = std::array<Traffic, kCounted.size()>;
Traffic traffic_at(const CountedTraffic& counted, std::int64_t N) {
  std::array<std::pair<double, double>, kCounted.size()> requested, unique;
  for (std::size_t i = 0; i < kCounted.size(); ++i) {
    requested[i] = {double(kCounted[i]), counted[i].requested};
    unique[i] = {double(kCounted[i]), counted[i].unique};
  }
  return {bench::parabola(requested, double(N)), bench::parabola(unique, double(N))};
}

/// Everything that one run of the verb needs.
class Bench {
 public:
  Bench(const Session& session, const BenchOptions& options)
      : session_(session), options_(options), chapters_(wanted_chapters(session, options)) {
    gpu_ = worker::gpu_present() && session.toolchain.can_build(Backend::cuda);
    counts_ = session.toolchain.can_build(Backend::sim) && session.toolchain.counts;
    if (options.steps && !gpu_) skip("--steps: the steps of a chapter are timed on a GPU only");
  }

  Results run() {
    describe_machine(session_, results_, options_);
    say_what_is_missing();
    build();
    if (gpu_) {
      measure_device();
      for (const Chapter* chapter : chapters_) {
        for (const std::string& pass : passes_of(session_, *chapter)) time_on_gpu(*chapter, pass);
      }
      if (options_.steps) time_steps();
    } else {
      for (const Chapter* chapter : chapters_) time_without_gpu(*chapter);
    }
    if (options_.peers) time_peers();
    if (options_.profile) profile();
    session_.progress("");
    return std::move(results_);
  }

 private:
  void skip(const std::string& what) {
    if (std::find(results_.skipped.begin(), results_.skipped.end(), what) == results_.skipped.end())
      results_.skipped.push_back(what);
  }

  void say_what_is_missing() {
    const auto any = [&](Backend backend) {
      return std::any_of(chapters_.begin(), chapters_.end(), [&](const Chapter* c) { return c->runs_on(backend); });
    };
    if (gpu_) {
      for (const Chapter* chapter : chapters_) {
        if (!chapter->runs_on(Backend::cuda)) skip(fmt::format("{} runs on the CPU only", chapter->name()));
      }
    } else {
      const std::string why =
          worker::gpu_present() ? session_.toolchain.why_not(Backend::cuda) : "this machine has no GPU";
      skip("times on a GPU, its limits, and shares of them: " + why);
      if (!session_.toolchain.can_build(Backend::sim) && any(Backend::sim))
        skip("kernels on the simulator: " + session_.toolchain.why_not(Backend::sim));
    }
    if (any(Backend::sim) && session_.toolchain.can_build(Backend::sim) && !counts_)
      skip("bytes that kernels ask for: the simulator does not count here (" + session_.toolchain.simulator + ")");
    if (options_.profile && !gpu_) skip("--profile: the profiler needs a GPU");
    if (options_.profile && gpu_ && worker::find_program("ncu").empty())
      skip("--profile: Nsight Compute (ncu) was not found in PATH");
  }

  // Building.

  std::vector<Backend> backends_of(const Chapter& chapter) const {
    std::vector<Backend> backends;
    for (const Backend backend : chapter.backends) {
      const bool wanted = backend == Backend::cuda ? gpu_ : backend == Backend::sim ? counts_ || !gpu_ : !gpu_;
      if (wanted && session_.toolchain.can_build(backend)) backends.push_back(backend);
    }
    return backends;
  }

  void build() {
    session_.progress("building the stages");
    std::set<std::string> targets;
    std::vector<worker::WorkerJob> jobs;
    const auto add = [&](worker::WorkerJob job) {
      const std::vector<std::string>& more = session_.toolchain.backends.at(job.backend).targets;
      targets.insert(more.begin(), more.end());
      jobs.push_back(std::move(job));
    };
    for (const Chapter* chapter : chapters_) {
      const std::vector<std::string> passes = passes_of(session_, *chapter);
      if (std::none_of(passes.begin(), passes.end(), [&](const auto& pass) { return wants_pass(options_, pass); }))
        continue;
      for (const Backend backend : backends_of(*chapter)) add(stage_job(session_, *chapter, backend, options_));
    }
    if (gpu_) {
      add(device_job("device"));
      if (!session_.toolchain.cublas.empty()) add(device_job("product"));
      if (options_.steps) {
        for (const bench::Variant& variant : variants()) {
          const worker::WorkerJob job = step_job(variant);
          const bool known =
              std::any_of(jobs.begin(), jobs.end(), [&](const auto& other) { return other.name == job.name; });
          if (!known) add(job);
        }
      }
    }
    worker::build_targets(session_.toolchain, {targets.begin(), targets.end()});
    built_ = worker::build_workers(session_.toolchain, jobs);
  }

  worker::WorkerJob device_job(const std::string& name) const {
    worker::WorkerJob job;
    job.name = "bench/" + name;
    job.backend = Backend::cuda;
    job.include = session_.book.root / "common" / "bench";
    job.sources = {job.include / (name + ".cu")};
    if (name == "product") job.libraries = session_.toolchain.cublas;
    return job;
  }

  /// The executable of a job, or a skipped line with what the compiler said.
  std::optional<fs::path> executable(const std::string& job, const std::string& for_what) {
    const worker::WorkerBuilt& built = built_.at(job);
    if (built.ok) return built.executable;
    skip(fmt::format("{}: not compiled: {}", for_what, built.log.substr(0, 2000)));
    return std::nullopt;
  }

  // The device's own limits.

  void measure_device() {
    session_.progress("the device's own limits");
    auto& about = results_.environment;
    if (const auto program = executable("bench/device", "copy and L2 reading")) {
      worker::Worker worker(*program, gpu_limits());
      try {
        worker::Call ask("properties");
        const worker::Reply described = worker.call(ask.output<double>("properties", 4));
        const std::vector<double> properties = described.output<double>("properties");
        about["CUDA"] = described.device_compiler;
        about["multiprocessors"] = fmt::format("{:.0f}", properties[0]);
        about["L2"] = bytes_text(properties[1]);
        about["device memory"] = bytes_text(properties[2]);
        about["compute capability"] = fmt::format("{:.1f}", properties[3] / 10);

        const double bytes = std::min(2.0 * (1u << 30), std::floor(properties[2] / 8 / 256) * 256);
        worker::Call copy("copy");
        copy.number("bytes", bytes).output<double>("seconds", 20);
        results_.roofs.copy_bytes = 2 * bytes / bench::summary(times_of(worker.call(copy))).median;

        const double part = 65536, blocks = 2 * properties[0], times = 512;  // 16.5 MiB on a GPU of 132 multiprocessors
        worker::Call l2("l2_read");
        l2.number("bytes", part).number("blocks", blocks).number("times", times).output<double>("seconds", 20);
        results_.roofs.l2_bytes = blocks * times * part / bench::summary(times_of(worker.call(l2))).median;
      } catch (const worker::Failure& failure) {
        skip(fmt::format("copy and L2 reading: {}", failure.what()));
      }
    }
    if (session_.toolchain.cublas.empty()) {
      skip("the matrix product to compare with: this CUDA Toolkit comes without cuBLAS");
    } else if (const auto program = executable("bench/product", "the matrix product to compare with")) {
      worker::Worker worker(*program, gpu_limits());
      try {
        // A burst, as the stages are timed: under a load that lasts, the power limit lowers the clock.
        worker::Call burst("product");
        burst.number("n", kProductSize).output<double>("seconds", 50);
        const double median = bench::summary(times_of(worker.call(burst))).median;
        results_.roofs.product_flops = 2 * std::pow(kProductSize, 3) / median;
        // Clocks and power in the middle of two seconds of it.
        auto asked = std::async(std::launch::async, [] {
          std::this_thread::sleep_for(std::chrono::seconds(1));
          return ask_gpu();
        });
        worker::Call load("product");
        load.number("n", kProductSize).output<double>("seconds", std::size_t(std::clamp(2 / median, 10.0, 1e5)));
        worker.call(load);
        const auto gpu = asked.get();
        for (const auto& [key, name] :
             std::map<std::string, std::string>{{"clocks.sm", "SM clock under load"},
                                                {"clocks.mem", "memory clock under load"},
                                                {"power.draw", "power under load"},
                                                {"temperature.gpu", "temperature under load, degrees Celsius"}}) {
          if (gpu.contains(key)) about[name] = gpu.at(key);
        }
      } catch (const worker::Failure& failure) {
        skip(fmt::format("the matrix product to compare with: {}", failure.what()));
      }
    }
    const auto gpu = ask_gpu();
    if (gpu.contains("name")) about["GPU"] = gpu.at("name");
    if (gpu.contains("driver_version")) about["driver"] = gpu.at("driver_version");
    if (gpu.contains("clocks.max.sm")) about["SM clock, highest"] = gpu.at("clocks.max.sm");
    if (gpu.contains("power.limit")) about["power limit"] = gpu.at("power.limit");
    if (about.contains("GPU")) results_.roofs.peak_flops = bench::peak_flops(about["GPU"]);
    if (!results_.roofs.peak_flops) skip("shares of the peak: it is not known for this GPU");
  }

  // The stages.

  Point point_of(const Chapter& chapter, Backend backend, const bench::Shape& shape) const {
    Point p;
    p.name = chapter.name();
    p.kind = "stage";
    p.source = is_readers(session_, chapter, options_) ? "chapters" : "solutions";
    p.backend = backend;
    p.element = chapter.element_on(backend);
    p.shape = shape;
    return p;
  }

  /// The shapes that are timed on a GPU in this pass.
  std::vector<bench::Shape> gpu_shapes(const std::string& pass, bool can_causal) const {
    std::vector<bench::Shape> shapes;
    for (const std::int64_t d : options_.head_dims) {
      for (const bool causal : wanted_masks(options_)) {
        if (causal && !can_causal) continue;
        for (const std::int64_t N : lengths()) shapes.push_back(bench::usual_shape(pass, causal, N, d));
      }
    }
    return shapes;
  }
  std::vector<std::int64_t> lengths() const {
    if (!options_.lengths.empty()) return options_.lengths;
    return gpu_ ? std::vector<std::int64_t>{256, 512, 1024, 2048, 4096, 8192, 16384}
                : std::vector<std::int64_t>{128, 256, 512, 1024};
  }

  /// Times one shape on a worker and checks the answer; false if the worker is of no more use.
  bool time_point(worker::Worker& worker, const Chapter& chapter, Point& p,
                  const std::map<std::string, double>& numbers = {}) {
    worker::Call call = bench_call(p.shape);
    call.number("budget", options_.budget).output<double>("seconds", kMostRuns);
    for (const auto& [name, number] : numbers) call.number(name, number);
    add_checked_outputs(call, p.shape);
    try {
      const worker::Reply reply = worker.call(call);
      const std::string wrong = what_is_wrong(reply, p);
      if (!wrong.empty()) {
        p.result = "wrong";
        p.message = wrong;
        return true;
      }
      p.times = bench::summary(times_of(reply));
      if (reply.extra_bytes >= 0) p.extra_bytes = double(reply.extra_bytes);
    } catch (const worker::Failure& failure) {
      take_failure(p, chapter, failure);
      return p.result == "out of memory" || p.result == "refused";
    }
    return true;
  }

  void time_on_gpu(const Chapter& chapter, const std::string& pass) {
    if (!chapter.runs_on(Backend::cuda) || !wants_pass(options_, pass)) return;
    const worker::WorkerBuilt& built = built_.at(stage_job(session_, chapter, Backend::cuda, options_).name);
    const auto shapes = gpu_shapes(pass, chapter.causal);
    if (!built.ok) {
      for (const bench::Shape& shape : shapes) {
        Point p = point_of(chapter, Backend::cuda, shape);
        p.result = "not compiled";
        p.message = built.log.substr(0, 2000);
        results_.points.push_back(p);
      }
      return;
    }
    std::optional<worker::Worker> worker;
    for (const bench::Shape& shape : shapes) {
      Point p = point_of(chapter, Backend::cuda, shape);
      session_.progress(fmt::format("{}, {}{}, d = {}, N = {}", p.name, shape.pass, shape.causal ? ", causal" : "",
                                    shape.d, shape.N));
      if (!worker) worker.emplace(built.executable, gpu_limits());
      if (!time_point(*worker, chapter, p)) worker.reset();
      if (const auto traffic = traffic_for(chapter, shape)) {
        p.requested_bytes = traffic->requested;
        p.unique_bytes = traffic->unique;
      }
      const bool useless = p.result == "not timed" || p.result == "todo";
      results_.points.push_back(std::move(p));
      if (useless) break;  // at every other shape too
    }
  }

  /// What the kernels of this shape ask for, from the simulator's counts at three short lengths.
  std::optional<Traffic> traffic_for(const Chapter& chapter, const bench::Shape& shape) {
    if (!counts_ || !chapter.runs_on(Backend::sim) || shape.N % kCounted[0] != 0) return std::nullopt;
    const auto key = std::tuple(chapter.number, shape.pass, shape.causal, shape.d);
    if (!traffic_.contains(key)) {
      std::optional<CountedTraffic> counted;
      const worker::WorkerBuilt& built = built_.at(stage_job(session_, chapter, Backend::sim, options_).name);
      if (built.ok) {
        worker::Worker worker(built.executable, simulator_limits());
        try {
          CountedTraffic found;
          for (std::size_t i = 0; i < kCounted.size(); ++i) {
            bench::Shape small = shape;
            small.B = small.H = 1;
            small.N = kCounted[i];
            session_.progress(fmt::format("{} on the simulator, N = {}", chapter.name(), small.N));
            worker::Call call = bench_call(small);
            found[i] = traffic_of(worker.call(call.output<double>("seconds", 1)));
          }
          counted = found;
        } catch (const worker::Failure& failure) {
          skip(fmt::format("bytes that {} asks for: {}", chapter.name(), failure.what()));
        }
      }
      traffic_[key] = counted;
    }
    const auto& counted = traffic_.at(key);
    if (!counted) return std::nullopt;
    Traffic all = traffic_at(*counted, shape.N);
    all.requested *= double(shape.B * shape.H);
    all.unique *= double(shape.B * shape.H);
    return all;
  }

  worker::Limits simulator_limits() const {
    worker::Limits limits;
    limits.time = std::chrono::duration<double>(3600);
    limits.memory = 0;
    return limits;
  }

  // Without a GPU: chapters of the CPU at short lengths and one head, kernels once on the simulator.

  void time_without_gpu(const Chapter& chapter) {
    if (!wants_pass(options_, chapter.pass)) return;
    for (const Backend backend : backends_of(chapter)) {
      const worker::WorkerBuilt& built = built_.at(stage_job(session_, chapter, backend, options_).name);
      for (const std::int64_t d : options_.head_dims) {
        for (const bool causal : wanted_masks(options_)) {
          if (causal && !chapter.causal) continue;
          const auto all = backend == Backend::sim ? std::vector<std::int64_t>{simulated_length()} : lengths();
          for (const std::int64_t N : all) {
            Point p = point_of(chapter, backend, {chapter.pass, causal, 1, 1, N, d});
            session_.progress(fmt::format("{} on {}, d = {}, N = {}", p.name, name(backend), d, N));
            if (!built.ok) {
              p.result = "not compiled";
              p.message = built.log.substr(0, 2000);
            } else if (backend == Backend::cpu) {
              time_on_cpu(chapter, built.executable, p);
            } else {
              run_on_simulator(chapter, built.executable, p);
            }
            results_.points.push_back(std::move(p));
          }
        }
      }
    }
  }
  std::int64_t simulated_length() const {
    const std::vector<std::int64_t> all = lengths();
    return std::min(*std::min_element(all.begin(), all.end()), kCounted[0]);
  }

  void time_on_cpu(const Chapter& chapter, const fs::path& executable, Point& p) {
    worker::Limits limits;
    limits.time = std::chrono::duration<double>(3600);
    limits.memory = std::uint64_t(1) << 46;
    worker::Worker worker(executable, limits);
    InputOptions options;
    options.shape = {1, 1, 1, p.shape.N, p.shape.N, p.shape.d};
    options.causal = p.shape.causal;
    const Problem problem = make_input("normal", options);
    std::vector<double> seconds;
    try {
      for (int run = 0; run < 4; ++run) {
        const worker::AttentionResult result =
            worker::forward(problem, p.element, {}, [&](const worker::Call& call) { return worker.call(call); });
        if (run > 0) seconds.push_back(result.reply.seconds);  // the first one warms up
        if (result.reply.extra_bytes >= 0) p.extra_bytes = double(result.reply.extra_bytes);
      }
      p.times = bench::summary(seconds);
    } catch (const worker::Failure& failure) {
      take_failure(p, chapter, failure);
    }
  }

  void run_on_simulator(const Chapter& chapter, const fs::path& executable, Point& p) {
    worker::Worker worker(executable, simulator_limits());
    worker::Call call = bench_call(p.shape);
    call.output<double>("seconds", 1);
    add_checked_outputs(call, p.shape);
    try {
      const worker::Reply reply = worker.call(call);
      const std::string wrong = what_is_wrong(reply, p);
      if (!wrong.empty()) {
        p.result = "wrong";
        p.message = wrong;
        return;
      }
      p.times = bench::summary({reply.seconds});
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

  // PyTorch.

  void time_peers() {
    const char* named = std::getenv("WORKBOOK_PYTHON");
    const std::string python = named != nullptr ? named : "python3";
    if (worker::find_program(python).empty()) {
      skip(fmt::format("--peers: {} was not found; WORKBOOK_PYTHON names another Python with PyTorch", python));
      return;
    }
    json shapes = json::array();
    for (const char* pass : {"forward", "backward"}) {
      if (!wants_pass(options_, pass)) continue;
      for (const bench::Shape& s : gpu_shapes(pass, true)) {
        shapes.push_back({{"pass", s.pass}, {"causal", s.causal}, {"B", s.B}, {"H", s.H}, {"N", s.N}, {"d", s.d}});
      }
    }
    const fs::path request = session_.toolchain.build_folder / fmt::format("bench_peers.{}.json", ::getpid());
    book::write_file(request, json{{"budget", options_.budget}, {"shapes", shapes}}.dump());
    worker::CommandOptions command;
    command.time = 1800;
    command.on_line = [&](const std::string& line) { take_peer(json::parse(line)); };
    const worker::CommandResult ended = worker::run_command(
        {python, (session_.book.root / "common" / "bench" / "peers.py").string(), request.string()}, command);
    fs::remove(request);
    if (ended.exit_code != 0) {
      skip(fmt::format("--peers: {} ended early (exit code {}):\n{}", python, ended.exit_code,
                       ended.output.substr(ended.output.size() > 2000 ? ended.output.size() - 2000 : 0)));
    }
  }

  void take_peer(const json& line) {
    if (line.contains("missing")) {
      skip(fmt::format("--peers: {}; WORKBOOK_PYTHON names another Python with PyTorch",
                       line.at("missing").get<std::string>()));
      return;
    }
    if (line.contains("environment")) {
      for (const auto& [key, value] : line.at("environment").items()) results_.environment[key] = value;
      return;
    }
    Point p;
    p.name = line.at("name");
    p.kind = "peer";
    p.source = "PyTorch";
    p.backend = Backend::cuda;
    p.element = "float16";
    const json& s = line.at("shape");
    p.shape = {s.at("pass"), s.at("causal"), s.at("B"), s.at("H"), s.at("N"), s.at("d")};
    p.result = line.at("result");
    p.message = line.at("message");
    if (p.ok()) {
      p.times = bench::summary(line.at("seconds").get<std::vector<double>>());
      p.extra_bytes = line.at("extra_bytes").get<double>();
    }
    session_.progress(fmt::format("{}, {}, d = {}, N = {}", p.name, p.shape.pass, p.shape.d, p.shape.N));
    results_.points.push_back(std::move(p));
  }

  // The profiler.

  void profile() {
    if (!gpu_ || worker::find_program("ncu").empty()) return;
    for (Point& p : results_.points) {
      if (p.kind != "stage" || p.backend != Backend::cuda || !p.ok() || p.shape.N != profiled_length()) continue;
      session_.progress(fmt::format("ncu: {}, d = {}", p.name, p.shape.d));
      const fs::path log = session_.toolchain.build_folder / fmt::format("bench_ncu.{}.csv", ::getpid());
      {
        worker::Limits limits = gpu_limits();
        limits.prefix = bench::profiler_command(log);
        limits.prefix.front() = worker::find_program("ncu").string();  // nobody looks in PATH for it
        limits.patience = std::chrono::duration<double>(60);
        limits.printed = std::uint64_t(1) << 30;
        const Chapter& chapter = session_.book.chapter(p.name);
        worker::Worker worker(built_.at(stage_job(session_, chapter, Backend::cuda, options_).name).executable, limits);
        worker::Call call = bench_call(p.shape);
        call.number("profile", 1).output<double>("seconds", 1);
        try {
          worker.call(call);
        } catch (const worker::Failure& failure) {
          skip(fmt::format("--profile, {}: {}", p.name, failure.what()));
        }
      }  // the worker ends, and the profiler writes its report
      const std::string text = fs::exists(log) ? book::read_file(log) : "";
      std::error_code ignored;
      fs::remove(log, ignored);
      p.profile = bench::profiled_metrics(text);
      if (p.profile.empty()) {
        skip(fmt::format("--profile, {}: no metrics; ncu said: {}", p.name, text.substr(0, 2000)));
        return;
      }
    }
  }
  std::int64_t profiled_length() const {
    const std::vector<std::int64_t> all = lengths();
    std::int64_t best = *std::min_element(all.begin(), all.end());
    for (const std::int64_t N : all) {
      if (N <= 4096) best = std::max(best, N);
    }
    return best;
  }

  // The steps within a chapter.

  const std::vector<bench::Variant>& variants() {
    if (variants_) return *variants_;
    variants_.emplace();
    const fs::path folder = session_.toolchain.build_folder / "bench" / "steps";
    for (const Chapter* chapter : chapters_) {
      if (!chapter->runs_on(Backend::cuda) || !wants_pass(options_, chapter->pass)) continue;
      const auto more = bench::load_variants(session_.book, *chapter, folder);
      variants_->insert(variants_->end(), more.begin(), more.end());
    }
    return *variants_;
  }

  worker::WorkerJob step_job(const bench::Variant& variant) const {
    const Chapter& chapter = session_.book.chapter(variant.chapter);
    worker::WorkerJob job =
        whole_job(session_, chapter, {"steps/" + variant.folder.filename().string(), variant.folder}, Backend::cuda);
    job.include = variant.folder;
    return job;
  }

  void time_steps() {
    for (const bench::Variant& variant : variants()) {
      const Chapter& chapter = session_.book.chapter(variant.chapter);
      const worker::WorkerBuilt& built = built_.at(step_job(variant).name);
      std::optional<worker::Worker> worker;
      for (const std::int64_t d : options_.head_dims) {
        if (variant.head_dim != 0 && variant.head_dim != d) continue;
        Point p = point_of(chapter, Backend::cuda, bench::usual_shape(chapter.pass, variant.causal, 4096, d));
        p.name = fmt::format("{}: {}", variant.chapter, variant.title);
        p.kind = "step";
        session_.progress(p.name);
        if (!built.ok) {
          p.result = "not compiled";
          p.message = built.log.substr(0, 2000);
        } else {
          if (!worker) worker.emplace(built.executable, gpu_limits());
          if (!time_point(*worker, chapter, p, variant.numbers)) worker.reset();
        }
        results_.points.push_back(std::move(p));
      }
    }
  }

  const Session& session_;
  const BenchOptions& options_;
  std::vector<const Chapter*> chapters_;
  bool gpu_ = false, counts_ = false;
  std::map<std::string, worker::WorkerBuilt> built_;
  std::map<std::tuple<int, std::string, bool, std::int64_t>, std::optional<CountedTraffic>> traffic_;
  std::optional<std::vector<bench::Variant>> variants_;  // read at the first use
  Results results_;
};

}  // namespace

/// The chapters that are named and, unless `only`, those before them; all if none is named.
std::vector<const Chapter*> wanted_chapters(const Session& session, const BenchOptions& options) {
  std::set<int> named;
  for (const std::string& which : options.chapters) {
    try {
      named.insert(session.book.chapter(which).number);
    } catch (const book::ManifestError& error) {
      fail_input("bench {}: {}", which, error.what());
    }
  }
  std::vector<const Chapter*> chapters;
  for (const Chapter& chapter : session.book.chapters) {
    const bool wanted =
        named.empty() || (options.only ? named.contains(chapter.number) : chapter.number <= *named.rbegin());
    if (wanted) chapters.push_back(&chapter);
  }
  return chapters;
}

Results measure(const Session& session, const BenchOptions& options) {
  return Bench(session, options).run();
}

}  // namespace workbook::cli
