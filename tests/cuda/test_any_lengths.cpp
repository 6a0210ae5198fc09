// Every stage of kernels and every variant of it at many pairs of lengths, for each d, mask and element in its
// description, compared with the oracle in every element; and the same call 200 times. A GPU runs everything in a
// minute or two; `WORKBOOK_STAGES=8,9 bin/tests_any_lengths` runs only chapters 8 and 9. Without a GPU, the simulator
// runs some of the short problems.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <map>
#include <set>

#include "common/attention/element.hpp"
#include "common/attention/inputs.hpp"
#include "common/attention/tolerance.hpp"
#include "common/judge/compare.hpp"
#include "common/judge/plan.hpp"
#include "common/training/chapters.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/description.hpp"
#include "tests/support/ragged.hpp"

using namespace workbook;
using namespace workbook::judge;

namespace {

using Numbers = std::map<std::string, double>;

/// A stage of the book's kernels, or a variant of it, in a running worker.
struct Subject {
  const book::Chapter* chapter;
  worker::Worker* worker;
  std::string operation;
  worker::StageDescription stage;

  bool is_variant() const { return !stage.number.empty(); }
  std::string text() const {
    return fmt::format("{}, {}{}", chapter->name(), operation,
                       is_variant() ? fmt::format(", {} = {}", stage.number, stage.value) : "");
  }
  Numbers numbers() const { return is_variant() ? Numbers{{stage.number, stage.value}} : Numbers{}; }
  worker::AttentionResult forward(const EncodedProblem& problem) const {
    return worker::forward(
        problem, numbers(), [&](const worker::Call& call) { return worker->call(call); }, operation);
  }
  worker::BackwardResult backward(const worker::EncodedBackward& problem) const {
    return worker::backward(operation, problem, problem.element, numbers(),
                            [&](const worker::Call& call) { return worker->call(call); });
  }
  /// Whether thread blocks add to dQ in no fixed order: chapters 9 and 13, except in deterministic mode, and chapter
  /// 6's variant.
  bool adds_in_any_order() const {
    return stage.number == "atomic" ||
           ((chapter->number == 9 || chapter->number == 13) && stage.number != "deterministic");
  }
};

Workspace open() {
  ::setenv("WORKBOOK_ROOT", WORKBOOK_SOURCE, 1);
  ::setenv("WORKBOOK_BUILD", WORKBOOK_BINARY, 1);
  return open_workspace();
}

/// The workers of the chapters that WORKBOOK_STAGES names, or of all that have kernels, built and started.
class Subjects {
 public:
  Subjects() : workspace_(open()), backend_(worker::gpu_present() ? Backend::cuda : Backend::sim) {
    if (const std::string why = why_unavailable(workspace_, backend_); !why.empty()) SKIP(why);
    std::vector<worker::WorkerJob> jobs;
    std::vector<const book::Chapter*> chapters;
    for (const book::Chapter& chapter : workspace_.book.chapters) {
      if (!chapter.runs_on(backend_) || !is_selected(chapter)) continue;
      chapters.push_back(&chapter);
      jobs.push_back(whole_job(workspace_, chapter, solutions_tree(workspace_, chapter), backend_));
    }
    worker::build_targets(workspace_.toolchain, workspace_.toolchain.backends.at(backend_).targets);
    const auto built = worker::build_workers(workspace_.toolchain, jobs);
    worker::Limits limits;
    limits.time = std::chrono::minutes(5);
    limits.memory = 0;  // CUDA reserves far more address space than it uses
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      INFO(built.at(jobs[i].name).log);
      REQUIRE(built.at(jobs[i].name).ok);
      worker::Worker& worker =
          workers_.try_emplace(jobs[i].name, built.at(jobs[i].name).executable, limits).first->second;
      for (const worker::StageDescription& stage :
           worker::describe([&](const worker::Call& call) { return worker.call(call); }).stages) {
        if (!has_codes(stage.element)) continue;
        all_.push_back({chapters[i], &worker, stage.operation, stage});
        if (stage.element == float8) continue;  // its variant rounds other numbers than the oracle's inputs
        for (worker::StageDescription variant : stage.variants)
          all_.push_back({chapters[i], &worker, stage.operation, variant});
      }
    }
  }

  /// The stages of this pass and element that support d and the mask.
  std::vector<const Subject*> that_do(const std::string& pass, Element element, std::int64_t d, bool causal) const {
    std::vector<const Subject*> some;
    for (const Subject& subject : all_) {
      const worker::StageDescription& s = subject.stage;
      if (s.pass == pass && s.element == element && s.does(d) && s.has(causal)) some.push_back(&subject);
    }
    return some;
  }
  /// The d among 32, 64 and 128 that a stage of this pass supports.
  std::set<std::int64_t> head_dims(const std::string& pass) const {
    std::set<std::int64_t> done;
    for (const Subject& subject : all_)
      for (const std::int64_t d : {32, 64, 128})
        if (subject.stage.pass == pass && subject.stage.does(d)) done.insert(d);
    return done;
  }
  bool on_gpu() const { return backend_ == Backend::cuda; }
  int repeats() const { return backend_ == Backend::cuda ? 200 : 3; }
  /// Thread blocks that fill a GPU.
  Shape repeated_shape(std::int64_t d) const {
    return backend_ == Backend::cuda ? Shape{1, 16, 16, 1000, 1023, d} : Shape{1, 1, 1, 40, 70, d};
  }

 private:
  static bool is_selected(const book::Chapter& chapter) {
    const char* numbers = std::getenv("WORKBOOK_STAGES");
    return numbers == nullptr ||
           fmt::format(",{},", numbers).find(fmt::format(",{},", chapter.number)) != std::string::npos;
  }

  Workspace workspace_;
  Backend backend_;
  std::map<std::string, worker::Worker> workers_;
  std::vector<Subject> all_;
};

Comparison compared(const char* name, const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds) {
  Layout layout;
  layout.tensor = name;
  if (layout.tensor == "lse") layout.axes[3] = "";
  return compare(got, expected, bounds, layout);
}
bool is_close(const char* name, const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds) {
  return compared(name, got, expected, bounds).close;
}
void expect_close(const Subject& subject, const char* name, const Tensor<float>& got, const Tensor<double>& expected,
                  const Bounds& bounds, const Problem& problem) {
  const Comparison comparison = compared(name, got, expected, bounds);
  const Shape& s = problem.shape;
  INFO(subject.text() << ", Nq=" << s.Nq << ", Nk=" << s.Nk << ", d=" << s.d << (problem.causal() ? ", causal" : "")
                      << "\n"
                      << comparison.text);
  CHECK(comparison.close);
}

/// The problems of each element, with the stages that support them: all on a GPU, some short ones on the simulator.
template <class Work>
void for_each_problem(const Subjects& subjects, const std::string& pass, const Work& work) {
  std::set<std::int64_t> lengths, head_dims, masks;
  for (const Element element : {float16, bfloat16, float8}) {
    test::for_ragged(subjects.on_gpu() ? 1 : 19, subjects.on_gpu() ? test::kAnyProduct : 129 * 129 * 128,
                     [&](const Shape& shape, bool causal, std::uint64_t number) {
                       const std::vector<const Subject*> stages = subjects.that_do(pass, element, shape.d, causal);
                       if (stages.empty()) return;
                       work(stages, make_input("normal", {shape, causal, 0, number}), element);
                       lengths.insert({shape.Nq, shape.Nk}), head_dims.insert(shape.d), masks.insert(causal);
                     });
  }
  if (lengths.empty()) SKIP("none of these stages is a " + pass + " pass");
  CHECK(lengths.size() == std::size(test::kRaggedLengths));
  CHECK(head_dims == subjects.head_dims(pass));
  CHECK(masks.size() == 2);
}

/// The additional input of a backward stage: a unit normal dO.
worker::BackwardProblem with_dO(const Problem& problem, Element element) {
  Tensor<float> dO(problem.Q.sizes);
  dO.values = normal_values(dO.values.size(), 7);
  return worker::backward_problem(problem, dO, element);
}

}  // namespace

TEST_CASE("forward stages agree with the oracle at any two lengths") {
  const Subjects subjects;
  for_each_problem(subjects, "forward", [](const auto& stages, const Problem& given, Element element) {
    const EncodedProblem problem = encoded(given, element);
    const Forward oracle = forward_oracle(problem.problem);
    const Precision precision = precision_of(element);
    for (const Subject* subject : stages) {
      const worker::AttentionResult got = subject->forward(problem);
      expect_close(*subject, "O", got.O, oracle.O, output_bounds(oracle, problem.problem, precision), given);
      expect_close(*subject, "lse", got.lse, oracle.lse, lse_bounds(oracle, problem.problem, precision), given);
    }
  });
}

TEST_CASE("backward stages agree with the oracle at any two lengths") {
  const Subjects subjects;
  for_each_problem(subjects, "backward", [](const auto& stages, const Problem& given, Element element) {
    const worker::BackwardProblem problem = with_dO(given, element);
    const worker::EncodedBackward codes = encoded(problem, element);
    const Gradients oracle = backward_oracle(problem.problem, problem.dO, problem.saved);
    const GradientBounds bounds =
        gradient_bounds(oracle, problem.problem, problem.dO, problem.saved, precision_of(element));
    for (const Subject* subject : stages) {
      const worker::BackwardResult got = subject->backward(codes);
      expect_close(*subject, "dQ", got.dQ, oracle.dQ, bounds.dQ, given);
      expect_close(*subject, "dK", got.dK, oracle.dK, bounds.dK, given);
      expect_close(*subject, "dV", got.dV, oracle.dV, bounds.dV, given);
    }
  });
}

TEST_CASE("forward stages give the same bits every time") {
  const Subjects subjects;
  for (const Element element : {float16, bfloat16, float8}) {
    for (const std::int64_t d : {32, 64, 128}) {
      for (const Subject* subject : subjects.that_do("forward", element, d, false)) {
        const Mask mask = subject->stage.masks.back();
        const EncodedProblem problem =
            encoded(make_input("rising maximum", {subjects.repeated_shape(d), mask, 0, 155}), element);
        const worker::AttentionResult first = subject->forward(problem);
        int different = 0;
        for (int i = 1; i < subjects.repeats(); ++i) {
          const worker::AttentionResult again = subject->forward(problem);
          different += again.O.values != first.O.values || again.lse.values != first.lse.values;
        }
        INFO(subject->text() << ", d=" << d);
        CHECK(different == 0);
      }
    }
  }
}

TEST_CASE("backward stages give the same bits every time, or the same dQ within its bounds") {
  const Subjects subjects;
  for (const Element element : {float16, bfloat16, float8}) {
    for (const std::int64_t d : {32, 64, 128}) {
      const std::vector<const Subject*> stages = subjects.that_do("backward", element, d, true);
      if (stages.empty()) continue;
      const Problem given = make_input("normal", {subjects.repeated_shape(d), true, 0, 155});
      const worker::BackwardProblem problem = with_dO(given, element);
      const worker::EncodedBackward codes = encoded(problem, element);
      const Gradients oracle = backward_oracle(problem.problem, problem.dO, problem.saved);
      const GradientBounds bounds =
          gradient_bounds(oracle, problem.problem, problem.dO, problem.saved, precision_of(element));
      for (const Subject* subject : stages) {
        const worker::BackwardResult first = subject->backward(codes);
        int different = 0, different_dQ = 0, outside = 0;
        for (int i = 0; i < subjects.repeats(); ++i) {
          const worker::BackwardResult again = i == 0 ? first : subject->backward(codes);
          different += again.dK.values != first.dK.values || again.dV.values != first.dV.values;
          different_dQ += again.dQ.values != first.dQ.values;
          if (i == 0 || again.dQ.values != first.dQ.values) outside += !is_close("dQ", again.dQ, oracle.dQ, bounds.dQ);
        }
        INFO(subject->text() << ", d=" << d << ": dQ of " << different_dQ << " runs is not that of the first");
        CHECK(different == 0);
        CHECK(outside == 0);
        if (!subject->adds_in_any_order()) CHECK(different_dQ == 0);
      }
    }
  }
}

TEST_CASE("a model is trained by chapters that do its head dimension") {
  const Workspace workspace = open();
  const Backend kernels = worker::gpu_present() ? Backend::cuda : Backend::sim;
  if (const std::string why = why_unavailable(workspace, kernels); !why.empty()) SKIP(why);
  for (const std::int64_t d : {32, 64}) {
    training::TrainingChapters chapters(workspace, {"solutions", kernels}, {training::MixedPrecision::fp16}, d);
    INFO(chapters.text());
    const Problem problem = make_input("normal", {{1, 2, 2, 40, 40, d}, true, 0, 157});
    std::vector<float> O(problem.Q.values.size()), lse(2 * 40);
    chapters.attention(training::MixedPrecision::fp16)
        ->forward({problem, problem.Q.values, problem.K.values, problem.V.values, O, lse});
    Tensor<float> got(problem.Q.sizes);
    got.values = O;
    const Problem rounded = rounded_to(problem, float16);
    const Forward oracle = forward_oracle(rounded);
    CHECK(is_close("O", got, oracle.O, output_bounds(oracle, rounded, precision_of(float16))));
  }
  CHECK_THROWS_WITH(
      training::TrainingChapters(workspace, {"solutions", kernels, {5}}, {training::MixedPrecision::fp16}, 64),
      Catch::Matchers::ContainsSubstring(
          "--attention 5: none of these chapters has a causal backward pass in float16"));
}
