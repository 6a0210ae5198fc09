#include "common/judge/main_job.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "common/attention/element.hpp"
#include "common/attention/error.hpp"
#include "common/attention/inputs.hpp"
#include "common/attention/tolerance.hpp"
#include "common/judge/compare.hpp"
#include "common/judge/jobs.hpp"
#include "common/judge/stages.hpp"
#include "common/judge/verdict.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/description.hpp"

namespace workbook::judge {
namespace {

using book::Chapter;
using nlohmann::json;

constexpr std::uint64_t kGradientSeed = 2;  // of the dO that backward stages receive

/// The inputs of a backward stage and its expected outputs.
struct BackwardGiven {
  worker::BackwardProblem problem;
  worker::EncodedBackward encoded, in_float;  ///< for the stage's element, and for a float32 stage
  std::optional<Gradients> oracle;
  GradientBounds bounds;
};

/// The inputs of the stages of one element and their expected outputs.
struct Given {
  EncodedProblem encoded;
  bool exact = false;  ///< rounding has changed nothing, so the oracle of the original problem applies
  std::optional<Bounds> O_bounds, lse_bounds;
  std::optional<BackwardGiven> backward;
};

/// The problem in every element that a stage uses. It is rounded, encoded and solved in float64 once, when a stage
/// first needs it.
class Problems {
 public:
  Problems(const Workspace& workspace, const Problem& problem) : workspace_(workspace), problem_(problem) {}

  Given& in(Element element) {
    const auto found = given_.find(element);
    if (found != given_.end()) return found->second;
    Given given{encoded(problem_, element), false, {}, {}, {}};
    const Problem& rounded = given.encoded.problem;
    given.exact = rounded.Q.values == problem_.Q.values && rounded.K.values == problem_.K.values &&
                  rounded.V.values == problem_.V.values;
    return given_.emplace(element, std::move(given)).first->second;
  }

  const Forward& oracle(const Given& given) {
    const std::optional<Element> numbers = given.exact ? std::nullopt : std::optional(given.encoded.element);
    const auto found = oracles_.find(numbers);
    if (found != oracles_.end()) return found->second;
    workspace_.progress("the oracle, in float64");
    return oracles_.emplace(numbers, forward_oracle(given.encoded.problem)).first->second;
  }

  /// A backward problem with a standard normal dO and the O and LSE of the oracle's forward pass.
  BackwardGiven& backward(Given& given) {
    if (given.backward) return *given.backward;
    const Problem& problem = given.encoded.problem;
    const Element element = given.encoded.element;
    Tensor<float> dO({problem.shape.B, problem.shape.H, problem.shape.Nq, problem.shape.d});
    dO.values = normal_values(dO.values.size(), kGradientSeed);
    worker::BackwardProblem backward = worker::backward_problem(problem, dO, element, oracle(given));
    worker::EncodedBackward codes = encoded(backward, element), floats = encoded(backward, float32);
    given.backward = BackwardGiven{std::move(backward), std::move(codes), std::move(floats), {}, {}};
    return *given.backward;
  }

 private:
  const Workspace& workspace_;
  const Problem& problem_;
  std::map<Element, Given> given_;
  std::map<std::optional<Element>, Forward> oracles_;  // no key: the original problem
};

double largest_difference(const Tensor<float>& a, const Tensor<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const double difference = std::abs(double(a.values[i]) - double(b.values[i]));
    if (!(difference <= largest)) largest = difference;  // keeps a NaN
  }
  return largest;
}

Comparison compared(const char* name, const Tensor<float>& got, const Tensor<double>& expected, const Bounds& bounds) {
  Layout layout;
  layout.tensor = name;
  if (layout.tensor == "lse") layout.axes[3] = "";                                      // one value per row
  if (layout.tensor == "dsink") layout.axes[0] = layout.axes[2] = layout.axes[3] = "";  // one per head
  return compare_finite(got, expected, bounds, layout);
}

/// "cannot be judged" instead of "ok" for a row whose bound is larger than the output: a wrong output could be within
/// it, too. `name`: O or dV, which are sums of rows of V or dO, so that a right one is not small because its terms
/// cancel, as all of dQ and dK do if each query sees one key.
void require_usable_bound(StageRow& row, const char* name, const Tensor<double>& expected, const Bounds& bounds) {
  double squares = 0;
  for (const double value : expected.values) squares += value * value;
  const double rms = std::sqrt(squares / double(std::max<std::size_t>(1, expected.values.size())));
  if (row.result != "ok" || rms == 0 || bounds.rms < rms) return;
  row.result = "cannot be judged";
  row.message = fmt::format(
      "the rms error of {0} may be {1:.2g}, and the rms of {0} itself is {2:.2g}: a wrong {0} could be within this "
      "bound. The scores are too large for the stage's precision; allowed: a smaller --scale, --softcap or input",
      name, bounds.rms, rms);
}

/// "32, 64 and 128": the head dimensions that the stage of this pass supports. Empty if d is one of them.
std::string dims_not_done(const worker::WorkerDescription& description, const std::string& pass, std::int64_t d) {
  const worker::StageDescription* stage = description.find(pass);
  if (stage == nullptr || stage->does(d)) return "";
  std::string text;
  for (const int each : *stage->head_dims) {
    if (!text.empty()) text += each == stage->head_dims->back() ? " and " : ", ";
    text += std::to_string(each);
  }
  return text;
}

/// Sets time, memory and the simulator's counters.
void take_counters(StageRow& row, const worker::Reply& reply) {
  row.seconds = reply.seconds;
  if (reply.extra_bytes >= 0) row.extra_bytes = double(reply.extra_bytes);
  if (reply.counters.contains("global.load_bytes")) {
    row.read_bytes = reply.read_bytes();
    row.written_bytes = reply.written_bytes();
  }
  if (reply.counters.contains("K.tiles")) row.tiles = reply.counter("K.tiles");
}

/// Sets the errors of O. The message is that of the first tensor outside its bounds.
void take_forward(StageRow& row, const Comparison& O, const Comparison& lse) {
  row.max_error = O.max_error;
  row.bound = O.bound;
  row.rms_error = O.rms_error;
  row.rms_bound = O.rms_bound;
  if (O.close && lse.close) return;
  row.result = "failed";
  row.message = O.close ? lse.text : O.text;
}

/// Sets the errors of the gradient with the largest ratio of error and bound, and likewise for the rms error. The
/// message is that of the first gradient outside its bounds.
void take_gradients(StageRow& row, const std::vector<Comparison>& gradients) {
  const auto most = [&](auto error, auto bound) -> const Comparison& {
    return *std::max_element(gradients.begin(), gradients.end(),
                             [&](const auto& a, const auto& b) { return a.*error * b.*bound < b.*error * a.*bound; });
  };
  const Comparison& element = most(&Comparison::max_error, &Comparison::bound);
  const Comparison& mean = most(&Comparison::rms_error, &Comparison::rms_bound);
  row.max_error = element.max_error;
  row.bound = element.bound;
  row.rms_error = mean.rms_error;
  row.rms_bound = mean.rms_bound;
  const auto outside = std::find_if(gradients.begin(), gradients.end(), [](const auto& g) { return !g.close; });
  if (outside == gradients.end()) return;
  row.result = "failed";
  row.message = outside->text;
}

/// The tables that a chapter provides beside its stage.
json tables_of(const std::function<worker::Reply(const worker::Call&)>& send) {
  worker::Call request("tables");
  request.output<std::uint8_t>("text", std::size_t(1) << 16);
  const std::string text = worker::text_of(send(request));
  try {
    const json tables = json::parse(text);
    tables.at("text").get<std::string>();
    tables.at("json").at("formats");
    tables.at("json").at("underflow");
    return tables;
  } catch (const json::exception& error) {
    throw worker::Failure(worker::Ending::broke_protocol,
                          fmt::format("the chapter's tables cannot be read: {}", error.what()));
  }
}
const json kNoTables{{"text", ""}, {"json", {{"formats", json::array()}, {"underflow", json::array()}}}};

/// One run of the job.
class Running {
 public:
  Running(const Workspace& workspace, const Problem& problem, const MainJob& job)
      : workspace_(workspace), problem_(problem), job_(job), problems_(workspace, problem) {
    result_.tables = kNoTables;
  }

  MainResult run(const std::function<void(const StageRow&)>& on_row) {
    const std::vector<StageToRun> stages = stages_of(workspace_, job_);
    build(stages);
    for (const StageToRun& stage : stages) {
      workspace_.progress(fmt::format("running {} on {}", stage.chapter->name(), name(stage.backend)));
      result_.rows.push_back(row_of(stage));
      workspace_.progress("");
      on_row(result_.rows.back());
    }
    return std::move(result_);
  }

 private:
  bool own(const Chapter& chapter) const { return job_.own || !workspace_.book.has_solutions(chapter); }

  Element element_of(const StageToRun& stage) const {
    return job_.element.value_or(stage.chapter->element_on(stage.backend));
  }
  /// The operation of the row's stage; disagreement() has checked that it exists.
  static std::string operation_of(const StageRow& row) {
    return worker::operation_for(row.pass, row.element, row.chapter->element_on(row.backend));
  }

  /// If a single stage is requested, its chapter's operations are included, since its tables are one of them. For the
  /// simulator only the kernels of this run are built, and the book's own with quick flags.
  worker::WorkerJob worker_job(const StageToRun& stage) const {
    const Chapter& chapter = *stage.chapter;
    const auto make_job = job_.stage.empty() ? stages_job : whole_job;
    worker::WorkerJob job =
        make_job(workspace_, chapter,
                 own(chapter) ? readers_tree(workspace_, chapter) : solutions_tree(workspace_, chapter), stage.backend);
    if (stage.backend != Backend::sim) return job;
    if (!own(chapter)) {
      job.flags = workspace_.toolchain.backends.at(stage.backend).quick_flags();
      if (element_of(stage) != bfloat16) job.flags.emplace_back("-DWORKBOOK_WITHOUT_BFLOAT16");
    }
    job.flags.push_back(fmt::format("-DWORKBOOK_HEAD_DIM={}", problem_.shape.d));
    return job;
  }

  void build(const std::vector<StageToRun>& stages) {
    workspace_.progress("building the stages");
    std::vector<std::string> targets;
    std::vector<worker::WorkerJob> jobs;
    for (const StageToRun& stage : stages) {
      if (!why_unavailable(workspace_, stage.backend).empty()) continue;
      worker::WorkerJob job = worker_job(stage);
      for (const std::string& target : workspace_.toolchain.backends.at(stage.backend).targets) {
        const bool quick = target == worker::kPrecompiled && std::ranges::count(job.flags, worker::kQuick) > 0;
        targets.emplace_back(quick ? worker::kQuickPrecompiled : target);
      }
      if (jobs.empty() || jobs.back().name != job.name) jobs.push_back(std::move(job));  // one for both passes
    }
    worker::build_targets(workspace_.toolchain, targets);
    built_ = worker::build_workers(workspace_.toolchain, jobs);
  }

  StageRow row_of(const StageToRun& stage) {
    const Chapter& chapter = *stage.chapter;
    StageRow row;
    row.chapter = &chapter;
    row.backend = stage.backend;
    row.pass = stage.pass;
    row.element = element_of(stage);
    row.source = own(chapter) ? "chapters" : "solutions";
    if (const std::string why = why_unavailable(workspace_, stage.backend); !why.empty()) {
      row.supported = false;
      row.result = "unavailable";
      row.message = why;
    } else if (const worker::WorkerBuilt& built = built_.at(worker_job(stage).name); !built.ok) {
      row.result = "not compiled";
      row.message = built.log;
    } else if (const std::string not_done = chapter.does_not_do(problem_, stage.backend); !not_done.empty()) {
      row.supported = false;
      row.result = "does not do " + not_done;
      if (!job_.stage.empty()) row.message = who_does(not_done != "Hkv < H");
    } else {
      call(row, built.executable);
    }
    return row;
  }

  /// "--kv-heads 2 with 4 heads of Q: allowed: …": which property of the input is not supported, its mask or its heads,
  /// and which stages support it.
  std::string who_does(bool by_mask) const {
    std::vector<std::string> stages;
    for (const Chapter& chapter : workspace_.book.chapters) {
      for (const Backend backend : chapter.backends) {
        if (chapter.does_not_do(problem_, backend).empty())
          stages.push_back(fmt::format("chapter {} on {}", chapter.number, name(backend)));
      }
    }
    const std::string requested = by_mask ? fmt::format("the mask {}", problem_.mask.name())
                                          : fmt::format("{} with {} heads of Q", job_.kv_heads, problem_.shape.H);
    const std::string allowed = by_mask ? "" : fmt::format("{} heads of K and V, or ", problem_.shape.H);
    return stages.empty() ? requested + ": no chapter supports it"
                          : fmt::format("{}: allowed: {}a stage that supports it: {}", requested, allowed,
                                        fmt::join(stages, ", "));
  }

  void call(StageRow& row, const std::filesystem::path& executable) {
    worker::Limits limits;
    limits.time = worker::Limits::kLongest;
    limits.memory = row.backend == Backend::cuda ? 0 : job_.memory;  // CUDA reserves too much address space
    worker::Worker worker(executable, limits);
    try {
      const auto send = [&](const worker::Call& call) { return worker.call(call); };
      const worker::WorkerDescription description = worker::describe(send, {}, problem_.shape.d);
      if (std::string wrong = disagreement(*row.chapter, row.backend, description); !wrong.empty()) {
        row.result = "failed";
        row.message = std::move(wrong);
      } else if (const std::string dims = dims_not_done(description, row.pass, problem_.shape.d); !dims.empty()) {
        row.supported = false;
        row.result = fmt::format("its kernels support d = {}, not {}", dims, problem_.shape.d);
      } else if (row.pass == "backward") {
        backward(row, worker, description);
      } else {
        forward(row, worker);
      }
      if (!job_.stage.empty() && row.ran() && description.has("tables") && result_.tables == kNoTables) {
        workspace_.progress("the tables of this chapter");
        result_.tables = tables_of(send);
      }
    } catch (const InputError& error) {
      row.result = "refused";
      row.message = error.what();
    } catch (const worker::Failure& failure) {
      row.result = worker::name(failure.ending);
      row.supported = failure.ending != worker::Ending::unavailable;
      row.message =
          failure.ending == worker::Ending::todo
              ? fmt::format("exercise {} is still open: ./workbook test {}", failure.todo, row.chapter->number)
              : failure.what();
    }
  }

  void forward(StageRow& row, worker::Worker& worker) {
    const Element element = row.element;
    Given& given = problems_.in(element);
    worker::AttentionResult got = worker::forward(
        given.encoded, job_.numbers, [&](const worker::Call& call) { return worker.call(call); }, operation_of(row));
    const Forward& oracle = problems_.oracle(given);
    if (!given.O_bounds) {
      given.O_bounds = output_bounds(oracle, given.encoded.problem, precision_of(element));
      given.lse_bounds = lse_bounds(oracle, given.encoded.problem, precision_of(element));
    }
    take_forward(row, compared("O", got.O, oracle.O, *given.O_bounds),
                 compared("lse", got.lse, oracle.lse, *given.lse_bounds));
    require_usable_bound(row, "O", oracle.O, *given.O_bounds);
    if (result_.O) row.previous_difference = largest_difference(got.O, *result_.O);
    take_counters(row, got.reply);
    // The output that is written, and with which the next stage is compared, is that of the more precise format where
    // there is a choice.
    if (!result_.O || (element != bfloat16 && element != float8)) {
      result_.O = std::move(got.O);
      result_.lse = std::move(got.lse);
    }
  }

  /// Compares the gradients with float64 and, where the chapter has one, with its own float32 backward pass.
  void backward(StageRow& row, worker::Worker& worker, const worker::WorkerDescription& description) {
    const Element element = row.element;
    BackwardGiven& given = problems_.backward(problems_.in(element));
    const auto send = [&](const worker::Call& call) { return worker.call(call); };
    const worker::BackwardResult got = worker::backward(operation_of(row), given.encoded, element, job_.numbers, send);
    take_counters(row, got.reply);
    if (!given.oracle) {
      const auto& [problem, dO, saved] = given.problem;
      given.oracle = backward_oracle(problem, dO, saved);
      given.bounds = gradient_bounds(*given.oracle, problem, dO, saved, precision_of(element));
    }
    std::vector<Comparison> gradients{compared("dQ", got.dQ, given.oracle->dQ, given.bounds.dQ),
                                      compared("dK", got.dK, given.oracle->dK, given.bounds.dK),
                                      compared("dV", got.dV, given.oracle->dV, given.bounds.dV)};
    if (!got.dsink.values.empty())
      gradients.push_back(compared("dsink", got.dsink, given.oracle->dsink, given.bounds.dsink));
    take_gradients(row, gradients);
    require_usable_bound(row, "dV", given.oracle->dV, given.bounds.dV);
    const worker::StageDescription* in_float = description.find("backward", float32);
    if (in_float == nullptr) return;
    try {
      const worker::BackwardResult naive = worker::backward(in_float->operation, given.in_float, float32, {}, send);
      row.previous_difference = std::max({largest_difference(got.dQ, naive.dQ), largest_difference(got.dK, naive.dK),
                                          largest_difference(got.dV, naive.dV)});
    } catch (const worker::Failure& failure) {
      // Its exercise may be open, or its P and dS may not fit in memory. Then nothing is compared.
      if (failure.ending != worker::Ending::todo && failure.ending != worker::Ending::refused) throw;
    }
  }

  const Workspace& workspace_;
  const Problem& problem_;
  const MainJob& job_;
  Problems problems_;
  std::map<std::string, worker::WorkerBuilt> built_;
  MainResult result_;
};

}  // namespace

std::vector<StageToRun> stages_of(const Workspace& workspace, const MainJob& job) {
  std::vector<const Chapter*> chapters;
  if (job.stage.empty()) {
    for (const Chapter& chapter : workspace.book.chapters) chapters.push_back(&chapter);
  } else {
    try {
      chapters.push_back(&workspace.book.chapter(job.stage));
    } catch (const book::ManifestError& error) {
      fail_input("--stage {}: {}", job.stage, error.what());
    }
  }
  std::vector<StageToRun> stages;
  for (const Chapter* chapter : chapters) {
    for (const Backend backend : chapter->backends) {
      const bool wanted = job.backend ? backend == *job.backend : backend != Backend::cuda || worker::gpu_present();
      if (!wanted || (job.element && !chapter->takes(*job.element, backend))) continue;
      for (const std::string& pass : chapter->passes())
        if (job.pass.empty() || pass == job.pass) stages.push_back({chapter, backend, pass});
    }
  }
  if (stages.empty() && job.element)
    fail_input("--element {}: none of these stages supports it{}", name(*job.element),
               job.backend ? fmt::format(" on {}", name(*job.backend)) : "");
  if (stages.empty() && !job.pass.empty())
    fail_input("--pass {}: none of these stages computes it{}", job.pass,
               chapters.size() == 1 ? fmt::format("; allowed: {}", fmt::join(chapters[0]->passes(), ", ")) : "");
  if (stages.empty())
    fail_input("--backend {}: none of these stages runs on it", job.backend ? name(*job.backend) : "");
  return stages;
}

json to_json(const StageRow& row) {
  return {{"chapter", row.chapter->name()},
          {"source", row.source},
          {"backend", name(row.backend)},
          {"pass", row.pass},
          {"element", row.element},
          {"supported", row.supported},
          {"result", row.result},
          {"message", row.message.empty() ? json(nullptr) : json(row.message)},
          {"max_error", number_json(row.max_error)},
          {"rms_error", number_json(row.rms_error)},
          {"bound", number_json(row.bound)},
          {"rms_bound", number_json(row.rms_bound)},
          {"previous_difference", number_json(row.previous_difference)},
          {"extra_bytes", row.extra_bytes ? json(std::int64_t(*row.extra_bytes)) : json(nullptr)},
          {"global_read_bytes", number_json(row.read_bytes)},
          {"global_write_bytes", number_json(row.written_bytes)},
          {"tiles", row.tiles ? json(std::int64_t(*row.tiles)) : json(nullptr)},
          {"seconds", number_json(row.seconds)}};
}

MainResult run_stages(const Workspace& workspace, const Problem& problem, const MainJob& job,
                      const std::function<void(const StageRow&)>& on_row) {
  return Running(workspace, problem, job).run(on_row);
}

}  // namespace workbook::judge
