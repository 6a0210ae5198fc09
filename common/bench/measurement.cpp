#include "common/bench/measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "common/attention/problem.hpp"
#include "common/judge/plan.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/command.hpp"

namespace workbook::bench {
namespace fs = std::filesystem;
using book::Chapter;

namespace {

constexpr std::size_t kMostOfLog = 2000;  // characters of a compiler's log

}  // namespace

Measurement::Measurement(const judge::Workspace& workspace_, const MeasureRequest& request_)
    : workspace(workspace_), request(request_), chapters(wanted_chapters(workspace_, request_)) {
  gpu = worker::gpu_present() && workspace.toolchain.can_build(Backend::cuda);
  counts = workspace.toolchain.can_build(Backend::sim) && workspace.toolchain.counts;
}

void Measurement::skip(const std::string& what) {
  if (std::find(results.skipped.begin(), results.skipped.end(), what) == results.skipped.end())
    results.skipped.push_back(what);
}

void Measurement::build() {
  workspace.progress("building the stages");
  std::set<std::string> targets;
  std::vector<worker::WorkerJob> jobs;
  const auto add = [&](worker::WorkerJob job) {
    if (std::any_of(jobs.begin(), jobs.end(), [&](const auto& other) { return other.name == job.name; })) return;
    const std::vector<std::string>& more = workspace.toolchain.backends.at(job.backend).targets;
    targets.insert(more.begin(), more.end());
    jobs.push_back(std::move(job));
  };
  for (const Chapter* chapter : chapters) {
    const std::vector<std::string> passes = passes_of(*chapter);
    if (std::none_of(passes.begin(), passes.end(), [&](const auto& pass) { return wants_pass(pass); })) continue;
    for (const Backend backend : backends_of(*chapter)) add(stage_job(*chapter, backend));
  }
  if (gpu) {
    add(device_job("device"));
    if (!workspace.toolchain.cublas.empty()) add(device_job("product"));
    for (const Chapter* chapter : chapters) {
      if (!request.steps || !is_wanted(*chapter, Backend::cuda) || !wants_pass(chapter->pass)) continue;
      const auto more = load_variants(workspace.book, *chapter, workspace.toolchain.build_folder / "bench" / "steps");
      variants.insert(variants.end(), more.begin(), more.end());
    }
    for (const Variant& variant : variants) add(step_job(variant));
  }
  worker::build_targets(workspace.toolchain, {targets.begin(), targets.end()});
  built = worker::build_workers(workspace.toolchain, jobs);
}

std::vector<Shape> decoding_shapes(std::int64_t d) {
  constexpr std::int64_t Hkv = 8;
  const std::int64_t scale = 128 / d;                   // a key of d = 64 has half of the bytes
  using Cache = std::pair<std::int64_t, std::int64_t>;  // B, Nk
  const Cache caches[] = {{1, 1024 * scale}, {4 * scale, 4096}, {32 * scale, 4096}, {1, 65536}};
  std::vector<Shape> shapes;
  for (const std::int64_t group : {1, 4, 8}) {
    for (const auto& [B, Nk] : caches) {
      Shape shape = shape_of("forward", Mask::none, B, group * Hkv, Nk, d);
      shape.shape.Hkv = Hkv, shape.shape.Nq = 1;
      shapes.push_back(shape);
      shape.mask.cache.assign(std::size_t(B), Nk);
      for (const std::int64_t page_size : {64, 16, 1}) {
        shape.mask.page_size = page_size, shape.mask.page_seed = 1;
        shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

bool Measurement::is_wanted(const Chapter& chapter, Backend backend) const {
  return !versions_of(chapter, backend).empty();
}

std::vector<Version> versions_of(const Chapter& chapter, Backend backend, const MeasureRequest& request) {
  if (!chapter.runs_on(backend)) return {};
  const Element own = chapter.element_on(backend);
  std::vector<Element> elements;
  for (const Element element : request.elements.empty() ? std::vector{own} : request.elements) {
    if (chapter.takes(element, backend)) elements.insert(element == own ? elements.begin() : elements.end(), element);
  }
  std::vector<Version> versions;
  for (const Element element : elements) {
    std::string name = chapter.name();
    if (elements.size() > 1 && element != own) name += ", " + workbook::name(element);
    versions.push_back({name, element, {}});
    if (request.numbers.empty() || backend == Backend::cpu) continue;  // variants are kernels
    for (const auto& [number, value] : request.numbers) name += fmt::format(", {}={:g}", number, value);
    versions.push_back({name, element, request.numbers});
  }
  return versions;
}

std::vector<Mask> Measurement::masks() const {
  if (!request.masks.empty()) return request.masks;
  std::vector<Mask> all;
  for (const NamedMask& each : all_masks()) all.push_back(each.mask);
  return all;
}

std::vector<std::int64_t> Measurement::lengths() const {
  if (!request.lengths.empty()) return request.lengths;
  return gpu ? std::vector<std::int64_t>{256, 512, 1024, 2048, 4096, 8192, 16384}
             : std::vector<std::int64_t>{128, 256, 512, 1024};
}

Shape Measurement::requested_shape(Shape shape) const {
  shape.shape.Hkv = shape.H() / request.group;
  if (request.queries != 0) shape.shape.Nq = request.queries;
  return shape;
}

std::vector<Shape> Measurement::gpu_shapes(const std::string& pass, const std::vector<Mask>& served) const {
  std::vector<Shape> shapes;
  for (const std::int64_t d : request.head_dims) {
    if (request.decoding) {
      for (const Shape& shape : decoding_shapes(d))
        if (part_not_in(served, shape.mask).empty()) shapes.push_back(shape);
      continue;
    }
    for (const Mask& mask : masks()) {
      if (!part_not_in(served, mask).empty()) continue;
      for (const std::int64_t N : lengths()) {
        Shape shape = usual_shape(pass, mask, N, d);
        if (request.batch != 0) shape.shape.B = request.batch;
        if (request.heads != 0) shape.shape.H = request.heads;
        shapes.push_back(requested_shape(shape));
      }
    }
  }
  return shapes;
}

std::vector<Backend> Measurement::backends_of(const Chapter& chapter) const {
  std::vector<Backend> backends;
  for (const Backend backend : chapter.backends) {
    const bool sim = !gpu || (counts && request.queries == 0);  // with few queries, nothing is counted
    const bool wanted = backend == Backend::cuda ? gpu : backend == Backend::sim ? sim : !gpu;
    if (wanted && is_wanted(chapter, backend) && workspace.toolchain.can_build(backend)) backends.push_back(backend);
  }
  return backends;
}

bool Measurement::serves(const Chapter& chapter, const Shape& shape, Backend backend) {
  if (chapter.does_not_do(shape, backend).empty()) return true;
  std::vector<std::string> others;
  for (const Chapter& other : workspace.book.chapters)
    if (other.does_not_do(shape, backend).empty()) others.push_back(other.name());
  skip(fmt::format("{} with --group {}: its heads do not share K and V; allowed: {}", chapter.name(), request.group,
                   fmt::join(others, ", ")));
  return false;
}

std::vector<std::string> Measurement::passes_of(const Chapter& chapter) const {
  std::vector<std::string> passes = chapter.passes();
  for (const std::string& name : chapter.compiles) {
    const std::string& pass = workspace.book.chapter(name).pass;
    if (std::find(passes.begin(), passes.end(), pass) == passes.end()) passes.push_back(pass);
  }
  return passes;
}

bool Measurement::is_readers(const Chapter& chapter) const {
  return request.own || !workspace.book.has_solutions(chapter);
}

worker::WorkerJob Measurement::stage_job(const Chapter& chapter, Backend backend) const {
  return whole_job(workspace, chapter,
                   is_readers(chapter) ? readers_tree(workspace, chapter) : solutions_tree(workspace, chapter),
                   backend);
}

worker::WorkerJob Measurement::step_job(const Variant& variant) const {
  const Chapter& chapter = workspace.book.chapter(variant.chapter);
  return whole_job(workspace, chapter, {"steps/" + variant.folder.filename().string(), variant.folder}, Backend::cuda);
}

worker::WorkerJob Measurement::device_job(const std::string& name) const {
  worker::WorkerJob job;
  job.name = "bench/" + name;
  job.backend = Backend::cuda;
  job.include = workspace.book.root / "common" / "bench";
  job.sources = {job.include / (name + ".cu")};
  if (name == "product") job.libraries = workspace.toolchain.cublas;
  return job;
}

const worker::WorkerBuilt& Measurement::built_stage(const Chapter& chapter, Backend backend) const {
  return built.at(stage_job(chapter, backend).name);
}
const worker::WorkerBuilt& Measurement::built_step(const Variant& variant) const {
  return built.at(step_job(variant).name);
}

std::optional<fs::path> Measurement::device_program(const std::string& name, const std::string& for_what) {
  const worker::WorkerBuilt& program = built.at(device_job(name).name);
  if (program.ok) return program.executable;
  skip(fmt::format("{}: not compiled: {}", for_what, program.log.substr(0, kMostOfLog)));
  return std::nullopt;
}

Point Measurement::point_of(const Chapter& chapter, Backend backend, const Shape& shape, const Version& version) const {
  Point point;
  point.name = version.name;
  point.kind = "stage";
  point.source = is_readers(chapter) ? "chapters" : "solutions";
  point.backend = backend;
  point.element = version.element;
  point.shape = shape;
  return point;
}

worker::Limits gpu_limits() {
  worker::Limits limits;
  limits.time = std::chrono::duration<double>(300);
  limits.memory = 0;  // CUDA reserves far more address space than it uses
  return limits;
}

worker::Limits simulator_limits() {
  worker::Limits limits;
  limits.time = std::chrono::duration<double>(3600);
  limits.memory = 0;
  return limits;
}

worker::Call bench_call(const Chapter& chapter, const Point& point) {
  return bench_call(point.shape, worker::operation_for("bench", point.element, chapter.element_on(point.backend)));
}

worker::Call bench_call(const Shape& shape, const std::string& operation) {
  worker::Call call(operation);
  worker::add_numbers(call, shape);
  call.number("backward", shape.pass == "backward");  // for a chapter that has both passes
  return call;
}

std::vector<double> times_of(const worker::Reply& reply) {
  std::vector<double> seconds = reply.output<double>("seconds");
  std::erase_if(seconds, [](double x) { return std::isnan(x); });
  return seconds;
}

std::string output_of(const std::vector<std::string>& command) {
  if (worker::find_program(command[0]).empty()) return "";
  const worker::CommandResult result = worker::run_command(command);
  if (result.exit_code != 0) return "";
  std::string text = result.output;
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

void take_compile_error(Point& point, const worker::WorkerBuilt& built) {
  point.result = "not compiled";
  point.message = built.log.substr(0, kMostOfLog);
}

void take_failure(Point& point, const Chapter& chapter, const worker::Failure& failure) {
  const std::string what = failure.what();
  point.message = what;
  if (what.find("cudaErrorMemoryAllocation") != std::string::npos) {
    point.result = "out of memory";
  } else if (failure.ending == worker::Ending::todo) {
    point.result = "todo";
    point.message = fmt::format("exercise {} is still open: ./workbook test {}", failure.todo, chapter.number);
  } else if (what.find("has no operation \"bench\"") != std::string::npos) {
    point.result = "not timed";
    point.message = fmt::format("{} has no operation to time", chapter.name());
  } else {
    point.result = worker::name(failure.ending);
  }
}

}  // namespace workbook::bench
