// run: the main job. Takes Q, K, V, sends them through every stage, checks each against the oracle and the stage
// before.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>

#include "common/attention/element.hpp"
#include "common/attention/error.hpp"
#include "common/attention/inputs.hpp"
#include "common/attention/npy.hpp"
#include "common/attention/tolerance.hpp"
#include "common/cli/input.hpp"
#include "common/cli/verbs.hpp"
#include "common/judge/compare.hpp"
#include "common/judge/run.hpp"
#include "common/judge/stages.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/description.hpp"
#include "common/worker/worker.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using nlohmann::json;

constexpr std::uint64_t kGradientSeed = 2;  // of the dO that backward stages are given

/// One row of the table.
struct Row {
  const Chapter* chapter = nullptr;
  std::string source;
  Backend backend = Backend::cpu;
  std::string result = "ok";  ///< "ok", "failed", or why there is no result: "todo", "refused", "not compiled", …
  std::string message;
  bool supported = true;
  std::optional<double> max_error, bound, rms_error, rms_bound, previous_difference, extra_bytes, seconds;
  std::optional<double> read_bytes, written_bytes, tiles;  ///< counted on the simulator
  bool ran() const { return result == "ok" || result == "failed"; }
};

/// "512M", "2GiB", "1000000": bytes.
std::uint64_t parse_bytes(const std::string& text) {
  std::size_t end = 0;
  double number = 0;
  try {
    number = std::stod(text, &end);
  } catch (const std::exception&) {
    end = 0;
  }
  std::string unit = text.substr(end);
  if (unit.ends_with("iB"))
    unit.resize(unit.size() - 2);
  else if (unit.ends_with("B"))
    unit.resize(unit.size() - 1);
  const double factor = unit.empty()  ? 1
                        : unit == "K" ? 1024
                        : unit == "M" ? 1024. * 1024
                        : unit == "G" ? 1024. * 1024 * 1024
                                      : 0;
  if (end == 0 || factor == 0 || !(number > 0) || number * factor > 1e18) {
    fail_input("--memory {}: not a size; allowed: a positive number, with K, M or G after it if you like (\"512M\")",
               text);
  }
  constexpr double least = 16. * 1024 * 1024;  // a stage's program takes about half of that before it computes anything
  if (number * factor < least) fail_input("--memory {}: too little to start a stage; allowed: at least 16M", text);
  return std::uint64_t(number * factor);
}

double largest_difference(const Tensor<float>& a, const Tensor<float>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const double difference = std::abs(double(a.values[i]) - double(b.values[i]));
    if (!(difference <= largest)) largest = difference;  // keeps a NaN
  }
  return largest;
}

/// The worse of two tensors' comparisons, by the share of the bound that is used.
void take(Row& row, const judge::Comparison& O, const judge::Comparison& lse) {
  row.max_error = O.max_error;
  row.bound = O.bound;
  row.rms_error = O.rms_error;
  row.rms_bound = O.rms_bound;
  if (O.close && lse.close) return;
  row.result = "failed";
  row.message = O.close ? lse.text : O.text;
}

/// The errors of the gradient that uses most of its bound, and likewise of the mean; the first that is outside speaks.
void take_gradients(Row& row, const std::vector<judge::Comparison>& gradients) {
  const auto most = [&](auto error, auto bound) -> const judge::Comparison& {
    return *std::max_element(gradients.begin(), gradients.end(),
                             [&](const auto& a, const auto& b) { return a.*error * b.*bound < b.*error * a.*bound; });
  };
  const judge::Comparison& element = most(&judge::Comparison::max_error, &judge::Comparison::bound);
  const judge::Comparison& mean = most(&judge::Comparison::rms_error, &judge::Comparison::rms_bound);
  row.max_error = element.max_error;
  row.bound = element.bound;
  row.rms_error = mean.rms_error;
  row.rms_bound = mean.rms_bound;
  const auto outside = std::find_if(gradients.begin(), gradients.end(), [](const auto& g) { return !g.close; });
  if (outside == gradients.end()) return;
  row.result = "failed";
  row.message = outside->text;
}

json row_json(const Row& row) {
  return {{"chapter", row.chapter->name()},
          {"source", row.source},
          {"backend", name(row.backend)},
          {"pass", row.chapter->pass},
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

std::string cell(std::optional<double> value) {
  return value ? fmt::format("{:.1e}", *value) : "-";
}
std::string bytes_cell(std::optional<double> bytes) {
  return bytes && *bytes >= 0 ? bytes_text(*bytes) : "-";
}

void print_table(const Session& session, const Problem& problem, const RunOptions& options,
                 const std::vector<Row>& rows) {
  fmt::print("{}\n\n", input_text(problem, options));
  fmt::print("{:<22} {:<10} {:<4} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>10} {:>10} {:>9}\n", "stage", "source", "on",
             "max err", "allowed", "rms err", "allowed", "previous", "extra mem", "read", "written", "time");
  for (const Row& row : rows) {
    fmt::print("{:<22} {:<10} {:<4} ", row.chapter->name(), row.source, name(row.backend));
    if (row.ran()) {
      fmt::print("{:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>10} {:>10} {:>8.3f}s  {}\n", cell(row.max_error),
                 cell(row.bound), cell(row.rms_error), cell(row.rms_bound), cell(row.previous_difference),
                 bytes_cell(row.extra_bytes), bytes_cell(row.read_bytes), bytes_cell(row.written_bytes),
                 row.seconds.value_or(0),
                 row.result == "ok" ? session.colored("ok", "green") : session.colored("OUTSIDE ITS BOUND", "red"));
    } else {
      fmt::print("{}\n", session.colored(row.result, "yellow"));
    }
  }
  for (const Row& row : rows) {
    if (!row.message.empty()) fmt::print("\n{}: {}\n", row.chapter->name(), row.message);
  }
  fmt::print(
      "\nmax err: error of the element of O that uses most of its bound; previous: largest difference to the stage "
      "above;\nof a backward stage: the same of dQ, dK and dV for a normal dO, and previous: to the naive "
      "backward;\nextra mem: the most that the stage allocated while it ran; read, written: what its kernels asked of "
      "global memory,\ncounted by the simulator (sim), whose time says nothing about a GPU's. How the bounds come "
      "about: notes/numerics.md\n");
}

/// A chapter on one of its backends.
struct Stage {
  const Chapter* chapter;
  Backend backend;
};

/// Every chapter on its backends; on a GPU where there is one, or where it was asked for by name.
std::vector<Stage> wanted_stages(const Session& session, const RunOptions& options) {
  std::vector<const Chapter*> chapters;
  if (options.stage.empty()) {
    for (const Chapter& chapter : session.book.chapters) chapters.push_back(&chapter);
  } else {
    try {
      chapters.push_back(&session.book.chapter(options.stage));
    } catch (const book::ManifestError& error) {
      fail_input("--stage {}: {}", options.stage, error.what());
    }
  }
  std::vector<Stage> stages;
  const std::optional<Backend> only = worker::backend_named(options.backend);
  for (const Chapter* chapter : chapters) {
    for (const Backend backend : chapter->backends) {
      const bool wanted = only ? backend == *only : backend != Backend::cuda || worker::gpu_present();
      if (wanted) stages.push_back({chapter, backend});
    }
  }
  if (stages.empty()) fail_input("--backend {}: none of these stages runs on it", options.backend);
  return stages;
}

worker::WorkerJob stage_job(const Session& session, const Stage& stage, const RunOptions& options) {
  const bool own = options.chapters || !session.book.has_solutions(*stage.chapter);
  return whole_job(session, *stage.chapter,
                   own ? readers_tree(session, *stage.chapter) : solutions_tree(session, *stage.chapter),
                   stage.backend);
}

/// What stages that see the same numbers are given and checked against, once one of them needs it.
struct Checked {
  std::optional<Problem> problem;
  std::optional<Forward> oracle;
};

/// Time, memory, and what the simulator counted.
void take_counters(Row& row, const worker::Reply& reply) {
  row.seconds = reply.seconds;
  if (reply.extra_bytes >= 0) row.extra_bytes = double(reply.extra_bytes);
  const auto counted = [&](const char* name) -> std::optional<double> {
    const auto found = reply.counters.find(name);
    return found == reply.counters.end() ? std::nullopt : std::optional(found->second);
  };
  if (const auto read = counted("global.load_bytes"))
    row.read_bytes = *read + counted("global.async_bytes").value_or(0);
  row.written_bytes = counted("global.store_bytes");
  row.tiles = counted("K.tiles");
}

/// "32, 64 and 128": the head dimensions of the stage of this pass, if d is none of them.
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

/// A backward stage: the gradients for a unit normal dO, given the O and the LSE of the oracle's forward pass, against
/// float64 and against the chapter's own backward in float, where it has one.
void run_backward(Row& row, worker::Worker& worker, const Checked& check, const std::string& element,
                  const worker::WorkerDescription& description) {
  const Shape& shape = check.problem->shape;
  Tensor<float> dO({shape.B, shape.H, shape.Nq, shape.d});
  dO.values = normal_values(dO.values.size(), kGradientSeed);
  const worker::BackwardProblem given = worker::backward_problem(*check.problem, dO, element, *check.oracle);
  const auto send = [&](const worker::Call& call) { return worker.call(call); };
  const worker::BackwardResult result = worker::backward("backward", given, element, element, {}, send);
  take_counters(row, result.reply);

  const Gradients oracle = backward_oracle(given.problem, given.dO, given.saved);
  const GradientBounds bounds = gradient_bounds(oracle, given.problem, given.dO, given.saved, precision_of(element));
  const auto compared = [](const char* name, const Tensor<float>& got, const Tensor<double>& expected,
                           const Bounds& allowed) {
    judge::Layout layout;
    layout.tensor = name;
    return judge::compare(got, expected, allowed, layout);
  };
  take_gradients(row, {compared("dQ", result.dQ, oracle.dQ, bounds.dQ), compared("dK", result.dK, oracle.dK, bounds.dK),
                       compared("dV", result.dV, oracle.dV, bounds.dV)});
  const worker::StageDescription* in_float = description.find("backward", "float32");
  if (in_float == nullptr) return;
  try {
    const worker::BackwardResult naive = worker::backward(in_float->operation, given, "float32", "float32", {}, send);
    row.previous_difference =
        std::max({largest_difference(result.dQ, naive.dQ), largest_difference(result.dK, naive.dK),
                  largest_difference(result.dV, naive.dV)});
  } catch (const worker::Failure& failure) {
    // Its exercise may be open, or its P and dS may need more memory than there is: then there is nothing to compare.
    if (failure.ending != worker::Ending::todo && failure.ending != worker::Ending::refused) throw;
  }
}

/// What a chapter shows beside its stage: {"text": …, "json": {"formats": […], "underflow": […]}}.
json tables_of(const Session& session, const std::function<worker::Reply(const worker::Call&)>& send) {
  session.progress("the tables of this chapter");
  worker::Call request("tables");
  request.output<std::uint8_t>("text", std::size_t(1) << 16);
  const std::string text = worker::text_of(send(request));
  session.progress("");
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

}  // namespace

int run(const Session& session, const RunOptions& options) {
  require_writable("--out", options.out);
  require_writable("--lse", options.lse);
  if (!options.out.empty() && fs::weakly_canonical(options.out) == fs::weakly_canonical(options.lse)) {
    fail_input("--lse {}: that is also --out; allowed: another file", options.lse);
  }
  const std::uint64_t memory = options.memory.empty() ? 1ull << 46 : parse_bytes(options.memory);
  const std::vector<Stage> stages = wanted_stages(session, options);
  const Problem problem = make_problem(session, options);

  session.progress("building the stages");
  std::vector<std::string> targets;
  std::vector<worker::WorkerJob> jobs;
  for (const Stage& stage : stages) {
    if (!session.toolchain.can_build(stage.backend)) continue;
    const std::vector<std::string>& more = session.toolchain.backends.at(stage.backend).targets;
    targets.insert(targets.end(), more.begin(), more.end());
    jobs.push_back(stage_job(session, stage, options));
  }
  worker::build_targets(session.toolchain, targets);
  const auto built = worker::build_workers(session.toolchain, jobs);

  std::map<std::string, Checked> checked;  // by element
  std::vector<Row> rows;
  std::optional<Tensor<float>> previous, last_lse;
  json tables{{"text", ""}, {"json", {{"formats", json::array()}, {"underflow", json::array()}}}};
  for (const Stage& stage : stages) {
    const Chapter& chapter = *stage.chapter;
    Row row;
    row.chapter = &chapter;
    row.backend = stage.backend;
    row.source = options.chapters || !session.book.has_solutions(chapter) ? "chapters" : "solutions";
    session.progress(fmt::format("running {} on {}", chapter.name(), name(stage.backend)));
    if (!session.toolchain.can_build(stage.backend)) {
      row.supported = false;
      row.result = "unavailable";
      row.message = session.toolchain.why_not(stage.backend);
    } else if (const worker::WorkerBuilt& executable = built.at(stage_job(session, stage, options).name);
               !executable.ok) {
      row.result = "not compiled";
      row.message = executable.log;
    } else if (problem.causal && !chapter.causal) {
      row.supported = false;
      row.result = "does not do causal";
    } else {
      worker::Limits limits;
      limits.time = std::chrono::duration<double>(24 * 3600.0);
      limits.memory = stage.backend == Backend::cuda ? 0 : memory;  // CUDA reserves far more addresses than it uses
      worker::Worker worker(executable.executable, limits);
      const std::string element = chapter.element_on(stage.backend);
      try {
        const auto send = [&](const worker::Call& call) { return worker.call(call); };
        const worker::WorkerDescription description = worker::describe(send);
        if (const std::string wrong = judge::disagreement(chapter, stage.backend, description); !wrong.empty()) {
          row.result = "failed";
          row.message = wrong;
          rows.push_back(std::move(row));
          continue;
        }
        if (const std::string dims = dims_not_done(description, chapter.pass, problem.shape.d); !dims.empty()) {
          row.supported = false;
          row.result = fmt::format("kernels do d = {}, not {}", dims, problem.shape.d);
          rows.push_back(std::move(row));
          continue;
        }
        const Problem rounded = rounded_to(problem, element);
        const bool same = rounded.Q.values == problem.Q.values && rounded.K.values == problem.K.values &&
                          rounded.V.values == problem.V.values;
        Checked& check = checked[same ? "float32" : element];
        if (!check.problem) check.problem = rounded;
        const auto ask_oracle = [&] {
          if (check.oracle) return;
          session.progress("the oracle, in float64");
          check.oracle = forward_oracle(*check.problem);
        };
        if (chapter.pass == "backward") {
          ask_oracle();
          run_backward(row, worker, check, element, description);
          rows.push_back(std::move(row));
          continue;
        }
        worker::AttentionResult result = worker::forward(*check.problem, element, {}, send);
        ask_oracle();
        const Precision precision = precision_of(element);
        judge::Layout O_layout, lse_layout;
        O_layout.tensor = "O";
        lse_layout.tensor = "lse";
        lse_layout.axes[3] = "";
        take(row,
             judge::compare(result.O, check.oracle->O, output_bounds(*check.oracle, *check.problem, precision),
                            O_layout),
             judge::compare(result.lse, check.oracle->lse, lse_bounds(*check.oracle, *check.problem, precision),
                            lse_layout));
        if (previous) row.previous_difference = largest_difference(result.O, *previous);
        take_counters(row, result.reply);
        // What is written, and what the next stage is compared with, is of the finer format where there is a choice.
        if (!previous || element != "bfloat16") {
          previous = std::move(result.O);
          last_lse = std::move(result.lse);
        }
        if (!options.stage.empty() && description.has("tables") && tables.at("text") == "")
          tables = tables_of(session, send);
      } catch (const InputError& error) {
        row.result = "refused";
        row.message = error.what();
      } catch (const worker::Failure& failure) {
        row.result = worker::name(failure.ending);
        row.supported = failure.ending != worker::Ending::unavailable;
        row.message = failure.ending == worker::Ending::todo
                          ? fmt::format("exercise {} is still open: ./workbook test {}", failure.todo, chapter.number)
                          : failure.what();
      }
    }
    rows.push_back(std::move(row));
  }
  session.progress("");

  if (previous) {
    if (!options.out.empty()) write_npy(options.out, *previous);
    if (!options.lse.empty()) write_npy(options.lse, *last_lse, 3);
  } else if (!options.out.empty() || !options.lse.empty()) {
    fmt::print(stderr, "nothing was written: no stage gave a result\n");
  }
  if (session.json) {
    json stages_json = json::array();
    for (const Row& row : rows) stages_json.push_back(row_json(row));
    json document = tables.at("json");
    document["input"] = input_json(problem, options);
    document["stages"] = stages_json;
    print_json(document);
  } else {
    print_table(session, problem, options, rows);
    fmt::print("{}", tables.at("text").get<std::string>());
  }

  const auto any = [&](auto condition) { return std::any_of(rows.begin(), rows.end(), condition); };
  // A stage that says beforehand that it cannot (memory, causal) is no failure, as long as another one ran.
  if (any([](const Row& r) { return !r.ran() && r.supported && r.result != "refused"; })) return kTestFailed;
  if (any([](const Row& r) { return r.result == "failed"; })) return kTestFailed;
  return any([](const Row& r) { return r.ran(); }) ? kDone : kEnvironment;
}

}  // namespace workbook::cli
