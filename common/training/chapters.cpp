#include "common/training/chapters.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "common/attention/element.hpp"
#include "common/attention/error.hpp"
#include "common/judge/run.hpp"
#include "common/worker/worker.hpp"

namespace workbook::cli {
namespace {

using namespace workbook::training;
using worker::Call, worker::Reply, worker::Worker;

constexpr double kCallSeconds = 600;        // of attention on the simulator, on a slow machine
constexpr std::int64_t kBr = 64, kBc = 64;  // chapter 2's tiles

/// Attention by the operations "forward" of one worker and `operation` of another.
class ChapterAttention : public AttentionCore<float> {
 public:
  ChapterAttention(Worker& forward, Worker& backward, std::string operation, std::string element)
      : forward_(forward), backward_(backward), operation_(std::move(operation)), element_(std::move(element)) {}

  void forward(const AttentionForward<float>& call) override {
    Call request = request_of("forward", call.shape, call.scale, call.causal);
    if (!has_codes(element_)) request.number("Br", kBr).number("Bc", kBc);
    std::vector<std::vector<std::uint16_t>> codes;
    codes.reserve(3);  // the request keeps pointers to them
    for (const auto& [name, values] : {std::pair{"Q", call.Q}, {"K", call.K}, {"V", call.V}})
      add_input(request, name, values, codes);
    add_output(request, "O", call.O.size());
    request.output<float>("lse", call.lse.size());
    const Reply reply = forward_.call(request);
    take(reply, "O", call.O);
    const auto lse = reply.output<float>("lse");
    std::copy(lse.begin(), lse.end(), call.lse.begin());
  }

  void backward(const AttentionBackward<float>& call) override {
    Call request = request_of(operation_, call.shape, call.scale, call.causal);
    std::vector<std::vector<std::uint16_t>> codes;
    codes.reserve(5);
    for (const auto& [name, values] :
         {std::pair{"Q", call.Q}, {"K", call.K}, {"V", call.V}, {"O", call.O}, {"dO", call.dO}})
      add_input(request, name, values, codes);
    request.input("lse", call.lse);
    for (const char* name : {"dQ", "dK", "dV"}) add_output(request, name, call.dQ.size());
    const Reply reply = backward_.call(request);
    take(reply, "dQ", call.dQ);
    take(reply, "dK", call.dK);
    take(reply, "dV", call.dV);
  }

 private:
  static Call request_of(const std::string& operation, const Shape& shape, float scale, bool causal) {
    Call request(operation);
    request.number("B", double(shape.B)).number("H", double(shape.H)).number("Hkv", double(shape.Hkv));
    request.number("Nq", double(shape.Nq)).number("Nk", double(shape.Nk)).number("d", double(shape.d));
    request.number("scale", scale).number("causal", causal);
    request.number("unobserved", 1);  // the simulator counts for nobody here
    return request;
  }
  void add_input(Call& request, const char* name, std::span<const float> values,
                 std::vector<std::vector<std::uint16_t>>& codes) const {
    if (has_codes(element_)) {
      codes.push_back(to_codes(values, element_));  // exact: they are numbers of the element
      request.input(name, codes.back());
    } else {
      request.input(name, values);
    }
  }
  void add_output(Call& request, const char* name, std::size_t count) const {
    if (has_codes(element_))
      request.output<std::uint16_t>(name, count);
    else
      request.output<float>(name, count);
  }
  void take(const Reply& reply, const char* name, std::span<float> into) const {
    const std::vector<float> values =
        has_codes(element_) ? from_codes(reply.output<std::uint16_t>(name), element_) : reply.output<float>(name);
    std::copy(values.begin(), values.end(), into.begin());
  }

  Worker &forward_, &backward_;
  std::string operation_, element_;
};

}  // namespace

struct TrainingChapters::Workers {
  std::map<int, Worker> by_chapter;
};

TrainingChapters::TrainingChapters(const Session& session, const CodeUnderTraining& code)
    : workers_(std::make_unique<Workers>()) {
  const bool own = code.tree == "chapters";
  if (!own && code.tree != "solutions")
    fail_input("attention by \"{}\": allowed are \"chapters\" and \"solutions\"", code.tree);
  const Backend backend = code.backend.value_or(Backend::sim);
  if (!session.toolchain.can_build(backend))
    throw EnvironmentError(fmt::format("attention on \"{}\": {}", name(backend), session.toolchain.why_not(backend)));
  std::map<int, worker::WorkerJob> jobs;
  std::vector<std::string> targets;
  for (const int number : {2, 5, 6, 7}) {
    const book::Chapter* chapter = session.book.find(number);
    if (chapter == nullptr) fail_input("--{}: this book has no chapter {}", code.tree, number);
    if (!own && !session.book.has_solutions(*chapter))
      fail_input("--solutions: this book comes without solutions; --chapters trains with the code in chapters/");
    jobs[number] =
        whole_job(session, *chapter, own ? readers_tree(session, *chapter) : solutions_tree(session, *chapter),
                  number == 2 ? Backend::cpu : backend);
    for (std::filesystem::path& used : jobs[number].used)
      used = session.book.root / code.tree / used.filename();  // bf16 by the same chapters 5 and 6
    const auto& more = session.toolchain.backends.at(jobs[number].backend).targets;
    targets.insert(targets.end(), more.begin(), more.end());
  }
  session.progress("building chapters 2, 5, 6 and 7");
  worker::build_targets(session.toolchain, targets);
  std::vector<worker::WorkerJob> all;
  for (const auto& [number, job] : jobs) all.push_back(job);
  const auto built = worker::build_workers(session.toolchain, all);
  for (const auto& [number, job] : jobs) {
    const worker::WorkerBuilt& executable = built.at(job.name);
    if (!executable.ok) throw EnvironmentError(fmt::format("chapter {} does not compile:\n{}", number, executable.log));
    worker::Limits limits;
    limits.time = std::chrono::duration<double>(kCallSeconds);
    if (job.backend == Backend::cuda) limits.memory = 0;  // CUDA reserves far more addresses than it uses
    workers_->by_chapter.try_emplace(number, executable.executable, limits);
  }
}

TrainingChapters::~TrainingChapters() = default;

std::unique_ptr<AttentionCore<float>> TrainingChapters::attention(training::Precision precision) {
  auto& workers = workers_->by_chapter;
  if (precision == training::Precision::fp32)
    return std::make_unique<ChapterAttention>(workers.at(2), workers.at(6), "naive_backward", "float32");
  if (precision == training::Precision::bf16)
    return std::make_unique<ChapterAttention>(workers.at(7), workers.at(7), "backward", "bfloat16");
  return std::make_unique<ChapterAttention>(workers.at(5), workers.at(6), "backward", "float16");
}

ScalingParts TrainingChapters::scaling(const RunState& run) {
  if (run.precision != training::Precision::fp16_scaled) return {};
  Worker& worker = workers_->by_chapter.at(7);
  ScalingParts parts;
  parts.unscale = [&worker](std::span<float> gradients, float scale) {
    const std::vector<std::uint16_t> scaled = to_codes(gradients, "float16");  // exact: they are stored so
    Call request("unscale");
    request.number("scale", scale).number("flag", 0).number("unobserved", 1).input("scaled", scaled);
    request.output<float>("unscaled", scaled.size()).output<std::int32_t>("found", 1);
    const Reply reply = worker.call(request);
    const auto unscaled = reply.output<float>("unscaled");
    std::copy(unscaled.begin(), unscaled.end(), gradients.begin());
    return reply.output<std::int32_t>("found")[0] == 0;
  };
  std::vector<std::int32_t> bad;
  for (const StepRecord& step : run.steps) bad.push_back(step.skipped);
  parts.update = [&worker, bad](ScalerState, const ScalerOptions& options, bool found_non_finite) mutable {
    bad.push_back(found_non_finite);
    Call request("scaler");
    request.number("initial", options.initial).number("growth", options.growth).number("backoff", options.backoff);
    request.number("growth_interval", double(options.growth_interval)).input("bad", bad);
    request.output<float>("scales", bad.size()).output<std::int32_t>("good_steps", bad.size());
    const Reply reply = worker.call(request);
    return ScalerState{reply.output<float>("scales").back(), reply.output<std::int32_t>("good_steps").back()};
  };
  return parts;
}

}  // namespace workbook::cli
