#include "common/training/chapters.hpp"

#include <algorithm>
#include <compare>
#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "common/attention/element.hpp"
#include "common/attention/error.hpp"
#include "common/attention/tensors.hpp"
#include "common/book/progress.hpp"
#include "common/judge/library.hpp"
#include "common/judge/plan.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/description.hpp"
#include "common/worker/worker.hpp"

namespace workbook::training {
namespace {

using worker::Call, worker::Reply, worker::Worker;

constexpr double kCallSeconds = 600;  // limit for attention on the simulator on a slow machine

/// A chapter's stage, with its worker.
struct Offered {
  const book::Chapter* chapter = nullptr;
  Worker* worker = nullptr;
  std::string operation;
};

/// Attention by two stages of the same element; without `backward`, the forward pass only.
class ChapterAttention : public AttentionCore<float> {
 public:
  ChapterAttention(const Offered& forward, const std::optional<Offered>& backward, Element element)
      : forward_(forward), backward_(backward), element_(element) {}

  void forward(const AttentionCall& call) override {
    const worker::AttentionResult got =
        worker::forward(encoded(problem_of(call), element_), kUnobserved, send_to(forward_), forward_.operation);
    std::copy(got.O.values.begin(), got.O.values.end(), call.O.begin());
    std::copy(got.lse.values.begin(), got.lse.values.end(), call.lse.begin());
  }

  void backward(const GradientCall& call) override {
    const worker::BackwardProblem given{problem_of(call), tensor<double>(call.dO, CallTensor::of_queries, call.shape),
                                        Saved{tensor<double>(call.O, CallTensor::of_queries, call.shape),
                                              tensor<double>(call.lse, CallTensor::of_rows, call.shape)}};
    const worker::BackwardResult got = worker::backward(backward_.value().operation, encoded(given, element_), element_,
                                                        kUnobserved, send_to(*backward_));
    std::copy(got.dQ.values.begin(), got.dQ.values.end(), call.dQ.begin());
    std::copy(got.dK.values.begin(), got.dK.values.end(), call.dK.begin());
    std::copy(got.dV.values.begin(), got.dV.values.end(), call.dV.begin());
  }

 private:
  static inline const std::map<std::string, double> kUnobserved{{"unobserved", 1}};  // no counters are needed

  template <class T>
  static Tensor<T> tensor(std::span<const float> values, CallTensor::Kind kind, const Shape& shape) {
    Tensor<T> tensor;
    tensor.sizes = CallTensor{"", kind}.sizes(shape);
    tensor.values.assign(values.begin(), values.end());
    return tensor;
  }
  template <class Call>
  static Problem problem_of(const Call& call) {
    return {call, tensor<float>(call.Q, CallTensor::of_queries, call.shape),
            tensor<float>(call.K, CallTensor::of_keys, call.shape),
            tensor<float>(call.V, CallTensor::of_keys, call.shape)};
  }
  static std::function<Reply(const Call&)> send_to(const Offered& offered) {
    return [&offered](const Call& call) { return offered.worker->call(call); };
  }

  Offered forward_;
  std::optional<Offered> backward_;
  Element element_;
};

Element element_of(MixedPrecision precision) {
  return precision == MixedPrecision::fp32 ? float32 : precision == MixedPrecision::bf16 ? bfloat16 : float16;
}

/// What training needs from a chapter: a causal pass in this element, or separate operations.
struct Need {
  std::string pass;
  Element element = float32;
  std::vector<std::string> operations;
  Backend backend = Backend::cpu;
  std::string use = "training";
  friend auto operator<=>(const Need&, const Need&) = default;

  std::string text() const {
    return pass.empty()
               ? fmt::format("the operations {}", fmt::join(operations, " and "))
               : fmt::format("a causal {} pass in {}{}", pass, name(element), use == "training" ? "" : " for " + use);
  }
};
Need need_of(MixedPrecision precision, const std::string& pass, Backend kernels, bool decoding = false) {
  const bool on_cpu = precision == MixedPrecision::fp32 && pass == "forward";
  return {pass, element_of(precision), {}, on_cpu ? Backend::cpu : kernels, decoding ? "decoding" : "training"};
}
/// The chapter with an exercise of that name provides them.
Need need_of_scaling(Backend kernels) {
  return {"", {}, {"unscale", "scaler"}, kernels};
}

/// Whether, by the manifest, the chapter has that pass, either its own or that of a chapter whose kernels it compiles.
bool has_pass(const book::Book& book, const book::Chapter& chapter, const std::string& pass) {
  return chapter.pass == pass ||
         std::any_of(chapter.compiles.begin(), chapter.compiles.end(),
                     [&](const std::string& other) { return book.chapter(other).pass == pass; });
}

/// The candidate chapters by their manifests: later chapters first and, on a GPU, chapters for one GPU architecture
/// before all others. Chapters with another element come last, since they may have an additional pass in float.
/// allowed: the chapters whose attention may be used; empty: all.
std::vector<const book::Chapter*> candidates(const book::Book& book, const Need& need,
                                             const std::vector<std::int64_t>& allowed) {
  std::vector<const book::Chapter*> likely, possible;
  for (auto chapter = book.chapters.rbegin(); chapter != book.chapters.rend(); ++chapter) {
    if (!chapter->runs_on(need.backend)) continue;
    if (need.pass.empty()) {
      if (std::any_of(chapter->exercises.begin(), chapter->exercises.end(),
                      [&](const book::Exercise& e) { return e.slug == need.operations.front(); }))
        likely.push_back(&*chapter);
    } else if (chapter->use != need.use) {
      continue;
    } else if (!allowed.empty() && need.backend != Backend::cpu && std::ranges::count(allowed, chapter->number) == 0) {
      continue;
    } else if (chapter->does(Mask::causal) && has_pass(book, *chapter, need.pass)) {
      if (chapter->element_on(need.backend) == need.element ||
          (chapter->pass == need.pass && chapter->takes(need.element, need.backend)))
        likely.push_back(&*chapter);
      else if (chapter->pass == need.pass && !has_codes(need.element))
        possible.push_back(&*chapter);
    }
  }
  const auto is_for_any = [](const book::Chapter* chapter) { return chapter->architecture.empty(); };
  if (need.backend == Backend::cuda)
    std::stable_partition(likely.begin(), likely.end(), std::not_fn(is_for_any));
  else  // kernels for one GPU architecture are the slowest on the simulator
    std::erase_if(likely, std::not_fn(is_for_any));
  likely.insert(likely.end(), possible.begin(), possible.end());
  return likely;
}

/// For the reader's code: finished chapters come before chapters with an open exercise, so that a reader at chapter 7
/// trains with chapter 5 although chapter 8 exists.
void put_done_first(const book::Book& book, std::vector<const book::Chapter*>& chapters) {
  const auto progress = book::load_progress(book);
  const auto is_done = [&](const book::Chapter& chapter) {
    return std::none_of(chapter.exercises.begin(), chapter.exercises.end(), [&](const book::Exercise& exercise) {
      return progress.at(exercise.id).state == book::Progress::open;
    });
  };
  std::stable_partition(chapters.begin(), chapters.end(), [&](const book::Chapter* chapter) {
    return is_done(*chapter) && std::all_of(chapter->compiles.begin(), chapter->compiles.end(),
                                            [&](const std::string& other) { return is_done(book.chapter(other)); });
  });
}

}  // namespace

struct TrainingChapters::Workers {
  const judge::Workspace& workspace;
  std::string tree;
  Backend kernels;
  std::int64_t head_dim;
  std::map<std::string, Worker> by_job;
  std::map<Need, Offered> offered;

  worker::WorkerJob job_of(const book::Chapter& chapter, Backend backend) const {
    const bool own = tree == "chapters";
    worker::WorkerJob job = whole_job(
        workspace, chapter, own ? readers_tree(workspace, chapter) : solutions_tree(workspace, chapter), backend);
    for (std::filesystem::path& used : job.used)
      used = workspace.book.root / tree / used.filename();  // the chapter whose kernels it compiles is in the same tree
    return job;
  }

  /// Builds and starts the missing workers, in one build.
  void start(const std::vector<std::pair<const book::Chapter*, Backend>>& chapters) {
    std::vector<std::string> targets, texts;
    std::map<std::string, worker::WorkerJob> jobs;
    std::map<std::string, int> numbers;
    for (const auto& [chapter, backend] : chapters) {
      worker::WorkerJob job = job_of(*chapter, backend);
      if (by_job.contains(job.name) || jobs.contains(job.name)) continue;
      const auto& more = workspace.toolchain.backends.at(backend).targets;
      targets.insert(targets.end(), more.begin(), more.end());
      texts.push_back(chapter->name());
      numbers[job.name] = chapter->number;
      jobs[job.name] = std::move(job);
    }
    if (jobs.empty()) return;
    workspace.progress(fmt::format("building {}", fmt::join(texts, ", ")));
    worker::build_targets(workspace.toolchain, targets);
    std::vector<worker::WorkerJob> all;
    for (const auto& [name, job] : jobs) all.push_back(job);
    const auto built = worker::build_workers(workspace.toolchain, all);
    for (const auto& [name, job] : jobs) {
      const worker::WorkerBuilt& executable = built.at(name);
      if (!executable.ok) judge::fail_environment("chapter {} does not compile:\n{}", numbers.at(name), executable.log);
      worker::Limits limits;
      limits.time = std::chrono::duration<double>(kCallSeconds);
      if (job.backend == Backend::cuda) limits.memory = 0;  // CUDA reserves far more addresses than it uses
      by_job.try_emplace(name, executable.executable, limits);
    }
  }

  /// The stage or the operations of the first candidate whose description includes them.
  Offered find(const Need& need, const std::vector<const book::Chapter*>& from) {
    for (const book::Chapter* chapter : from) {
      start({{chapter, need.backend}});
      Worker& worker = by_job.at(job_of(*chapter, need.backend).name);
      const worker::WorkerDescription description =
          worker::describe([&](const Call& call) { return worker.call(call); });
      if (need.pass.empty()) {
        if (std::all_of(need.operations.begin(), need.operations.end(),
                        [&](const std::string& operation) { return description.has(operation); }))
          return {chapter, &worker, ""};
      } else if (const worker::StageDescription* stage = description.find(need.pass, need.element);
                 stage != nullptr && stage->has(Mask::causal) && stage->does(head_dim) && stage->runs_here) {
        return {chapter, &worker, stage->operation};
      }
    }
    fail_input("--{}: this book has no chapter with {}{}", tree, need.text(),
               need.pass.empty() ? "" : fmt::format(" for d = {}", head_dim));
  }
};

TrainingChapters::TrainingChapters(const judge::Workspace& workspace, const CodeUnderTraining& code,
                                   const std::vector<MixedPrecision>& precisions, std::int64_t head_dim,
                                   Purpose purpose)
    : workers_(new Workers{workspace, code.tree, code.backend.value_or(Backend::sim), head_dim, {}, {}}) {
  if (code.tree != "chapters" && code.tree != "solutions")
    fail_input("attention by \"{}\": allowed: \"chapters\" and \"solutions\"", code.tree);
  const Backend kernels = workers_->kernels;
  if (!workspace.toolchain.can_build(kernels))
    judge::fail_environment("attention on \"{}\": {}", name(kernels), workspace.toolchain.why_not(kernels));
  std::map<Need, std::vector<const book::Chapter*>> needs;
  for (const MixedPrecision precision : precisions) {
    needs[need_of(precision, "forward", kernels)];
    if (purpose == Purpose::generation) {
      needs[need_of(precision, "forward", kernels, /*decoding=*/true)];
      continue;
    }
    needs[need_of(precision, "backward", kernels)];
    if (precision == MixedPrecision::fp16_scaled) needs[need_of_scaling(kernels)];
  }
  std::vector<std::pair<const book::Chapter*, Backend>> first;
  for (auto& [need, from] : needs) {
    from = candidates(workspace.book, need, code.chapters);
    if (code.tree == "chapters") put_done_first(workspace.book, from);
    if (from.empty() && !code.chapters.empty())
      fail_input("--attention {}: none of these chapters has {} that runs here", fmt::join(code.chapters, ","),
                 need.text());
    if (from.empty()) fail_input("--{}: this book has no chapter with {}", code.tree, need.text());
    first.emplace_back(from.front(), need.backend);
    if (code.tree == "solutions" && !workspace.book.has_solutions(*from.front()))
      fail_input(
          "--solutions: this copy of the book does not include its solutions; allowed: --chapters, for the code in "
          "chapters/");
  }
  workers_->start(first);
  for (const auto& [need, from] : needs) workers_->offered[need] = workers_->find(need, from);
}

TrainingChapters::~TrainingChapters() = default;

std::vector<std::string> TrainingChapters::open_exercises() const {
  if (workers_->tree != "chapters") return {};
  std::vector<const book::Chapter*> chapters;
  for (const auto& [need, offered] : workers_->offered) chapters.push_back(offered.chapter);
  return judge::open_exercises(workers_->workspace.book, chapters);
}

std::string TrainingChapters::text() const {
  std::set<int> numbers;
  for (const auto& [need, offered] : workers_->offered) numbers.insert(offered.chapter->number);
  std::string list;
  for (const int number : numbers) {
    if (!list.empty()) list += number == *numbers.rbegin() ? " and " : ", ";
    list += std::to_string(number);
  }
  return fmt::format("{} chapter{} {}", workers_->tree == "chapters" ? "your" : "the book's",
                     numbers.size() == 1 ? "" : "s", list);
}

std::unique_ptr<AttentionCore<float>> TrainingChapters::attention(MixedPrecision precision) {
  const auto stage = [&](const char* pass) {
    return workers_->offered.at(need_of(precision, pass, workers_->kernels));
  };
  return std::make_unique<ChapterAttention>(stage("forward"), stage("backward"), element_of(precision));
}

std::unique_ptr<AttentionCore<float>> TrainingChapters::forward_pass(MixedPrecision precision, bool decoding) {
  const Need need = need_of(precision, "forward", workers_->kernels, decoding);
  return std::make_unique<ChapterAttention>(workers_->offered.at(need), std::nullopt, element_of(precision));
}

ScalingParts TrainingChapters::scaling(const RunState& run) {
  if (run.precision != MixedPrecision::fp16_scaled) return {};
  Worker& worker = *workers_->offered.at(need_of_scaling(workers_->kernels)).worker;
  ScalingParts parts;
  parts.unscale = [&worker](std::span<float> gradients, float scale) {
    const std::vector<std::uint16_t> scaled = to_codes(gradients, float16);  // exact, since they are stored in fp16
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

}  // namespace workbook::training
