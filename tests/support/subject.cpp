#include "tests/support/subject.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <list>
#include <optional>
#include <set>
#include <string_view>

#include "common/attention/element.hpp"
#include "common/worker/description.hpp"
#include "tests/support/context.hpp"
#include "tests/support/outcome.hpp"
#include "tests/support/report_causes.hpp"
#include "tests/support/wrong_solutions.hpp"

namespace workbook::test {
namespace {

using judge::Cause, judge::Result;
using worker::Call;
using worker::Ending;
using worker::Failure;
using worker::Reply;
using worker::Worker;

std::string last_printed;  // what the code under test printed in its last call

/// What the reader's own printf said, for the end of a failure message.
std::string printed_text() {
  std::string text = last_printed;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "" : "\n  your code printed: " + text;
}

/// The first line of every failure message.
std::string headline(const std::string& input) {
  const auto subject = context().subjects.find(current_exercise());
  const bool on_host = subject != context().subjects.end() && subject->second.on_host;
  return fmt::format("chapter {}, \"{}\" failed on {}{}", context().chapter, current_test(),
                     text(on_host ? Backend::cpu : context().backend), input.empty() ? "" : " (" + input + ")");
}

/// Workers are started once, and used by test after test. Each has a thread for each core, so that only those of which
/// a test may still want something are kept: the code under test, what it is compared with, and the one before.
Worker& worker_of(const std::string& executable) {
  constexpr std::size_t most = 3;
  static std::list<std::pair<std::string, Worker>> workers;  // the last one used first
  const auto found = std::ranges::find(workers, executable, &std::pair<std::string, Worker>::first);
  if (found != workers.end()) {
    workers.splice(workers.begin(), workers, found);
    return found->second;
  }
  worker::Limits limits;
  if (context().backend == Backend::cuda) limits.memory = 0;  // CUDA reserves far more addresses than it uses
  if (context().backend == Backend::cpu) limits.stack = 256 << 10;
  limits.time = std::chrono::duration<double>(context().time_limit);
  if (executable != context().previous) limits.debugger = context().debugger;
  if (executable != context().previous) limits.prefix = context().worker_prefix;
  if (!limits.prefix.empty() && limits.memory != 0) limits.memory -= 3ull << 30;  // a submission's
  if (context().backend == Backend::cuda &&
      !limits.prefix.empty()) {  // compute-sanitizer: slow, and reports at the end
    limits.time *= 30;
    limits.patience = std::chrono::seconds(60);
  }
  if (workers.size() == most) workers.pop_back();
  return workers.emplace_front(executable, Worker(executable, limits)).second;
}

Outcome outcome_of_reports(const Failure& failure, const Call& call) {
  current_observation().reported = true;
  Outcome outcome{Result::failed, headline("") + "\n  the call was " + call.text()};
  if (!failure.printed.empty()) outcome.message += "\n  your code printed: " + failure.printed;
  outcome.reports = failure.reports;
  outcome.reports_left_out = failure.reports_left_out;
  if (const ReportCause* cause = cause_of(failure.reports)) {
    outcome.cause = Cause{cause->id, cause->sentence, ""};
    put_first(*cause, outcome.reports);
  }
  return outcome;
}

/// Of a test whose backend cannot run here.
Outcome cannot_run(const std::string& why) {
  Outcome outcome{Result::skipped, why};
  outcome.unavailable = true;
  return outcome;
}

/// Whether the standard library has ended the process for an index, by what its operator[] asserts.
bool is_index_of_standard_library(const std::string& printed) {
  return printed.find("operator[]") != std::string::npos && (printed.find("'__idx < size()'") != std::string::npos ||
                                                             printed.find("'__n < this->size()'") != std::string::npos);
}

/// How each way to die is reported.
Outcome outcome_of(const Failure& failure, const Call& call) {
  const std::string text = fmt::format("chapter {}, \"{}\": {}\n  the call was {}", context().chapter, current_test(),
                                       failure.what(), call.text());
  switch (failure.ending) {
    case Ending::todo:
      if (failure.todo == current_exercise()) return {Result::todo, "todo " + failure.todo};
      return {Result::blocked, "blocked by todo " + failure.todo, {}, failure.todo};
    case Ending::timed_out:
      return {Result::timed_out, text};
    case Ending::crashed:
      if (is_index_of_standard_library(failure.printed))
        return {Result::crashed, text,
                Cause{"read-outside",
                      "your code indexes a std::span or std::vector past its end; the index must be below size()", ""}};
      return {Result::crashed, text};
    case Ending::exited:
    case Ending::output_flood:
    case Ending::broke_protocol:
    case Ending::not_started:
      return {Result::crashed, text};
    case Ending::wrote_outside:
      return {
          Result::failed, text,
          Cause{"wrote-outside", "your code writes past the end of an array; the index must stay below its size", ""}};
    case Ending::changed_input:
      return {Result::failed, text,
              Cause{"changed-input", "your code writes to an input; inputs must stay unchanged", ""}};
    case Ending::out_of_memory:
      return {
          Result::failed, text,
          Cause{"out-of-memory",
                "your code allocates more memory than the test allows; it must not allocate memory that grows with N²",
                ""}};
    case Ending::reported:
      return outcome_of_reports(failure, call);
    case Ending::read_outside:
      return {Result::failed, text,
              Cause{"read-outside",
                    "your code indexes outside a matrix; the message names the index and the matrix's rows and columns",
                    ""}};
    case Ending::threw:  // what was thrown says it
      return {Result::failed, text, Cause{"threw", "", ""}};
    case Ending::refused:
      return {Result::failed, text, Cause{"refused", "", ""}};
    case Ending::unavailable:
      return cannot_run(failure.what());
  }
  return {Result::failed, text};
}

std::string patient_test;  // whose calls may take `patience` times as long as others
double patience = 1;

/// What the calls of one test may take of memory, and the cause where that is not enough.
struct Allowed {
  std::string test;
  std::uint64_t bytes = 0;
  Cause cause;
} allowed;

/// Runs a call with a wrong solution of the current exercise.
Reply run_version(Call call, int version, double seconds) {
  Worker& worker = worker_of(context().subjects.at(current_exercise()).wrong_executable);
  const std::chrono::duration<double> usual(context().time_limit), most(seconds);
  worker.limits().time = seconds > 0 ? std::min(usual, most) : usual;
  return worker.call(call.version(version));
}

Reply call_worker(const std::string& executable, Call call) {
  const bool limited = allowed.test == current_test();
  if (limited) call.memory(allowed.bytes);
  if (executable != context().previous) call.version(context().version);
  static std::set<std::string> slow;  // executables that have timed out once: not waited for as long again
  Worker& worker = worker_of(executable);
  const std::chrono::duration<double> usual = worker.limits().time, brief(1);
  worker.limits().time = slow.contains(executable)        ? std::min(brief, usual)
                         : patient_test == current_test() ? usual * patience
                                                          : usual;
  try {
    Reply reply = worker.call(call);
    worker.limits().time = usual;
    last_printed = reply.printed;
    note_printed(printed_text());
    return reply;
  } catch (const Failure& failure) {
    worker.limits().time = usual;
    Outcome outcome = outcome_of(failure, call);
    if (failure.ending == Ending::timed_out) slow.insert(executable);
    if (executable != context().previous) compare_with_wrong_solutions(call, failure, run_version);
    // Without memory to be had a program may also end: an array that its stack has no room for, a null pointer.
    if (limited && (failure.ending == Ending::out_of_memory || failure.ending == Ending::crashed))
      outcome.cause = allowed.cause;
    end_test(outcome);
  }
}

std::int64_t tile(const std::map<std::string, double>& numbers, const char* name) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : std::int64_t(found->second);
}

}  // namespace

Reply call(const Call& call) {
  if (!context().unavailable.empty()) end_test(cannot_run(context().unavailable));
  const auto found = context().subjects.find(current_exercise());
  if (found == context().subjects.end()) {
    end_test({Result::failed, "the run has no code for exercise " + current_exercise() + ": a defect of the book"});
  }
  const Subject& subject = found->second;
  if (const std::string& failed = context().failed; !failed.empty() && current_exercise() == judge::kWhole)
    end_test({Result::blocked, "blocked by " + failed + ", which fails", {}, failed});
  if (subject.open) end_test({Result::todo, "todo " + current_exercise()});
  if (subject.executable.empty()) end_test({Result::not_compiled, subject.not_compiled});
  begin_observation(call.numbers());
  show_evidence_of(evidence_of_test);
  Reply reply = call_worker(subject.executable, call);
  const std::string wanted = context().backend == Backend::cpu ? "" : name(context().backend);
  if (reply.device != wanted || (context().backend == Backend::cuda && !reply.device_compiler.starts_with("nvcc "))) {
    end_test({Result::failed,
              fmt::format("the worker runs kernels on \"{}\", compiled by \"{}\", not on {}: a defect of the book",
                          reply.device, reply.device_compiler, text(context().backend))});
  }
  compare_with_wrong_solutions(call, reply, run_version);
  return reply;
}

void extend_time_limit(double times) {
  patient_test = current_test();
  patience = times;
}

double batches_beyond_32_bits(std::int64_t elements) {
  if (context().backend != Backend::sim)
    end_test(
        {Result::skipped, "only the simulator skips thread blocks; with all of them, the tensors would need 30 GB"});
  return double(((std::int64_t(1) << 32) + elements - 1) / elements);
}

void expect_many_heads(std::int64_t heads, Numbers numbers,
                       const std::function<WrongWithHead(const Numbers&)>& call_with) {
  const std::int64_t ends = 100;  // the last heads, from 65536 on, are fewer
  numbers["unobserved"] = double(ends);
  const WrongWithHead of_ends = call_with(numbers);
  bool right = true;
  for (std::int64_t i = 0; i < ends && right; ++i) right = of_ends(i).empty() && of_ends(heads - 1 - i).empty();
  if (right) return expect(true, "");
  numbers["unobserved"] = 1;
  extend_time_limit(6);
  const WrongWithHead of_all = call_with(numbers);
  // It is their number if all heads from 65536 on are wrong, and no head that 16 bits tell from the others.
  std::string first;
  bool of_the_number = true;
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::string wrong = of_all(head);
    if (first.empty()) first = wrong;
    if (head >= 65536) of_the_number = of_the_number && !wrong.empty();
    if (head >= heads - 65536 && head < 65535) of_the_number = of_the_number && wrong.empty();
  }
  expect(first.empty(), first,
         of_the_number ? "your code leaves out heads from 65536 on, or takes them for others; the grid's y and z "
                         "dimensions have at most 65535 thread blocks, and a head's index needs more than 16 bits"
                       : "",
         of_the_number ? "heads-above-65535" : judge::kUnknown);
}

void allow_memory(std::uint64_t bytes, const Cause& cause) {
  allowed = {current_test(), bytes, cause};
}

Reply call_previous(const Call& call) {
  if (context().previous.empty())
    end_test({Result::not_compiled, "the previous chapter, to compare with, could not be built"});
  return call_worker(context().previous, call);
}

namespace {

Element or_own(std::optional<Element> element) {
  return element.value_or(context().element);
}
std::string forward_for(std::optional<Element> element) {
  return worker::operation_for("forward", or_own(element), context().element);
}

}  // namespace

AttentionResult attention(const Problem& problem, const std::map<std::string, double>& numbers,
                          std::optional<Element> element) {
  return worker::forward(encoded(problem, or_own(element)), numbers, call, forward_for(element));
}

AttentionResult previous_attention(const Problem& problem, const std::map<std::string, double>& numbers) {
  return worker::forward(encoded(problem, context().previous_element), numbers, call_previous);
}

Problem in_element(const Problem& problem, std::optional<Element> element) {
  return rounded_to(problem, or_own(element));
}

Precision precision(std::optional<Element> element) {
  return precision_of(or_own(element));
}

void require_counters() {
  if (context().counts || context().backend == Backend::cpu) return;
  if (!context().unavailable.empty()) end_test(cannot_run(context().unavailable));
  end_test({Result::skipped, context().backend == Backend::sim ? "accesses are not counted in this build"
                                                               : "only the simulator counts accesses"});
}

namespace {
std::string counting_test;  // that has looked at what was counted
}

double counter(const Reply& reply, const std::string& name) {
  counting_test = current_test();
  const auto found = reply.counters.find(name);
  return found == reply.counters.end() ? 0 : found->second;
}

std::string describe(const Problem& problem, const std::string& kind) {
  const Shape& shape = problem.shape;
  std::string text =
      fmt::format("Nq={}, Nk={}, d={}, causal={}", shape.Nq, shape.Nk, shape.d, problem.causal() ? "yes" : "no");
  if (const Mask& mask = problem.mask; mask != Mask(mask.kind) || mask.kind > Mask::causal)
    text += ", mask " + mask.name();
  if (shape.B * shape.H > 1) text = fmt::format("B={}, H={}, ", shape.B, shape.H) + text;
  return kind.empty() ? text : text + fmt::format(", input \"{}\"", kind);
}

namespace {

/// Whether the rows of O times exp(lse) are what they should be: then the sums over P·V are, and only l is not. Nothing
/// where no finite row of O is off.
std::optional<bool> only_l_is_wrong(const Tensor<float>& O, const Tensor<float>& lse, const Forward& oracle,
                                    const Bounds& bounds) {
  constexpr double slack = 4;  // the bounds are those of O; the LSE brings its own rounding
  const auto d = std::size_t(O.sizes[3]);
  bool any_off = false;
  for (std::size_t i = 0; i < O.values.size(); ++i) {
    const double by = double(lse.values[i / d]) - oracle.lse.values[i / d], expected = oracle.O.values[i];
    if (std::isnan(by) || std::isnan(O.values[i])) return false;
    if (std::isinf(by) || std::isinf(O.values[i])) continue;  // l has become 0, or too small for O
    const double allowed = slack * bounds.element.values[i] * (1 + std::exp(by));
    if (std::abs(O.values[i] * std::exp(by) - expected) > allowed) return false;
    any_off = any_off || std::abs(O.values[i] - expected) > 2 * allowed;
  }
  return any_off ? std::optional(true) : std::nullopt;
}

/// Notes the tiles that the stage takes by itself where the call does not give any.
void note_tiles(const worker::StageDescription& stage, std::int64_t d) {
  std::map<std::string, double>& numbers = current_observation().numbers;
  const worker::StageTiles* tiles = stage.default_tiles(d);
  if (tiles == nullptr ||
      std::ranges::any_of(tiles->sizes, [&](const auto& size) { return numbers.contains(size.first); }))
    return;
  for (const auto& [name, size] : tiles->sizes) numbers[name] = size;
}

}  // namespace

void expect_all_close(const std::vector<Compared>& all) {
  std::vector<judge::Comparison> comparisons;
  judge::Observation& observation = current_observation();
  for (const Compared& each : all) {
    const Expectation& expectation = each.expectation;
    comparisons.push_back(judge::compare(each.got, expectation.expected, expectation.bounds, expectation.layout));
    const auto& findings = comparisons.back().findings;
    observation.tensors.insert(observation.tensors.end(), findings.begin(), findings.end());
  }
  std::size_t first = 0;
  while (first < all.size() && (comparisons[first].close || !all[first].decides)) ++first;
  if (first == all.size()) {
    SUCCEED();
    return;
  }
  Outcome outcome{Result::failed, headline(all[first].expectation.input) + "\n" + comparisons[first].text};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Expectation& expectation = all[i].expectation;
    if (comparisons[i].close) continue;
    if (i != first) {
      outcome.message += fmt::format("\n  {} is wrong too: {} of {} elements are off", expectation.layout.tensor,
                                     comparisons[i].off, comparisons[i].elements);
    }
  }
  outcome.message += printed_text();
  end_test(std::move(outcome));
}

void expect_close(const Tensor<float>& got, const Expectation& expectation) {
  expect_all_close({{got, expectation}});
}

const worker::StageDescription& stage_of(const std::string& pass, const Numbers& numbers,
                                         std::optional<Element> element) {
  static std::map<std::string, worker::WorkerDescription> known;  // by executable
  static const worker::StageDescription nothing;
  const auto subject = context().subjects.find(current_exercise());
  const std::string executable = subject == context().subjects.end() ? "" : subject->second.executable;
  auto found = known.find(executable);
  if (found == known.end()) {
    worker::WorkerDescription description;
    try {
      description = worker::describe(call);
    } catch (const Failure& unreadable) {
    }
    found = known.emplace(executable, std::move(description)).first;
  }
  const worker::StageDescription* stage =
      found->second.find(worker::operation_for(pass, or_own(element), context().element));
  if (stage == nullptr) return nothing;
  const auto is_requested = [&](const worker::StageDescription& variant) {
    return tile(numbers, variant.number.c_str()) == variant.value;
  };
  const auto variant = std::ranges::find_if(stage->variants, is_requested);
  return variant == stage->variants.end() ? *stage : *variant;
}

void note_kinds(const std::string& name, const Problem& problem) {
  if (std::ranges::count(input_kinds(), name, &InputKind::name) > 0) note_kind(name);
  if (problem.scale < 0) note_kind("a negative scale");
  if (problem.scale == 0) note_kind("a scale of 0");
  if (problem.causal() && problem.shape.Nq > problem.shape.Nk) note_kind("rows without keys");
}

AttentionResult expect_attention(const Problem& given, const std::string& kind, const Numbers& numbers,
                                 std::optional<Element> element) {
  const Problem problem = in_element(given, element);
  const std::int64_t Br = tile(numbers, "Br"), Bc = tile(numbers, "Bc");
  const worker::StageDescription& stage = stage_of("forward", numbers, element);
  note_kinds(kind, problem);
  AttentionResult result = attention(problem, numbers, element);
  note_tiles(stage, problem.shape.d);
  const Forward oracle = forward_oracle(problem);
  std::string input = describe(problem, kind);
  if (Br > 0) input += fmt::format(", Br={}, Bc={}", Br, Bc);
  if (or_own(element) != context().element) input += ", " + name(*element);
  judge::Layout O_layout, lse_layout;
  O_layout.tensor = "O";
  lse_layout.tensor = "lse";
  lse_layout.axes[3] = "";
  for (judge::Layout* layout : {&O_layout, &lse_layout}) {
    layout->Br = Br;
    layout->Bc = Bc;
    layout->rows_per_warp = stage.rows_per_warp;
  }
  const Bounds O_bounds = output_bounds(oracle, problem, precision(element));
  current_observation().only_l_is_wrong = only_l_is_wrong(result.O, result.lse, oracle, O_bounds);
  expect_all_close({{result.O, {oracle.O, O_bounds, O_layout, input}},
                    {result.lse, {oracle.lse, lse_bounds(oracle, problem, precision(element)), lse_layout, input}}});
  return result;
}

void expect_written(float value, const std::string& tensor) {
  if (judge::is_unwritten(value)) {
    expect(false, tensor + " was not written: it still has the NaN that outputs are filled with before the call",
           "your code writes nothing here, or only adds to the initial value; it must assign every element",
           "not-written");
  }
  expect(
      !std::isnan(value),
      tensor +
          " is a NaN that your code computed: −∞ − (−∞), 0 · ∞, ∞ / ∞, 0 / 0, or an operation on a NaN that it read");
}

BackwardResult backward(const BackwardProblem& given, const std::map<std::string, double>& numbers,
                        const std::string& operation, std::optional<Element> element) {
  const auto found = numbers.find("float_gradients");
  const bool in_float = found != numbers.end() && found->second != 0;
  return worker::backward(worker::operation_for(operation, or_own(element), context().element),
                          encoded(given, or_own(element)), in_float ? float32 : or_own(element), numbers, call);
}

BackwardResult float_backward(const BackwardProblem& given, const std::string& operation) {
  return worker::backward(operation, encoded(given, float32), float32, {}, call);
}

void expect_gradients(const BackwardResult& got, const BackwardProblem& given, const std::string& input,
                      const GradientTiles& tiles, const Precision& precision, const std::vector<std::string>& which) {
  const auto& [problem, dO, saved] = given;
  const Gradients oracle = backward_oracle(problem, dO, saved);
  const GradientBounds bounds = gradient_bounds(oracle, problem, dO, saved, precision);
  std::vector<Compared> all;
  const auto compare_with = [&](const std::string& name, bool decides) {
    const bool of_queries = name == "dQ", of_keys = name == "dK";
    judge::Layout layout;
    layout.tensor = name;
    (of_queries ? layout.Br : layout.Bc) = tiles.Bc;
    all.push_back({of_queries ? got.dQ
                   : of_keys  ? got.dK
                              : got.dV,
                   {of_queries ? oracle.dQ
                    : of_keys  ? oracle.dK
                               : oracle.dV,
                    of_queries ? bounds.dQ
                    : of_keys  ? bounds.dK
                               : bounds.dV,
                    layout, describe(problem, input)},
                   decides});
  };
  for (const std::string& name : which) compare_with(name, true);
  if (!got.dsink.values.empty()) {
    judge::Layout layout;
    layout.tensor = "dsink";
    layout.axes[0] = layout.axes[2] = layout.axes[3] = "";  // one number a head
    const bool decides = which.size() == 3 || std::ranges::count(which, "dsink") > 0;
    all.push_back({got.dsink, {oracle.dsink, bounds.dsink, layout, describe(problem, input)}, decides});
  }
  for (const char* other : {"dQ", "dK", "dV"})
    if (std::ranges::count(which, other) == 0) compare_with(other, false);
  expect_all_close(all);
}

void expect(bool condition, const std::string& message, const std::string& cause, const std::string& diagnosis) {
  if (condition) {
    SUCCEED();
    return;
  }
  Outcome outcome{Result::failed, headline("") + "\n  " + message + printed_text()};
  if (!diagnosis.empty() && diagnosis != judge::kUnknown)
    outcome.cause = Cause{diagnosis, cause, "", {}, counting_test == current_test()};
  end_test(std::move(outcome));
}

void expect_count(const Reply& reply, const std::string& name, double expected, const std::string& why,
                  const std::string& cause, const std::string& diagnosis) {
  const double got = counter(reply, name);
  expect(got == expected, fmt::format("{} is {}, expected {}: {}", name, got, expected, why), cause, diagnosis);
}

void expect_beside_copies(double products, double beside, double alone, const std::string& how) {
  const double expected = products * (1 - alone);
  expect(beside >= expected - 0.5,
         fmt::format("{} of {} matmuls of warps are issued while a copy is in flight, expected {}: {}", beside,
                     products, expected, how),
         "your code issues a copy after matmuls that it could overlap; it must issue the copy before them",
         "late-copies");
}

void expect_waits_apart(const Reply& reply, double first, const std::string& how) {
  const double together = counter(reply, "mbarrier_waits_together");
  expect(
      together <= first,
      fmt::format("{} times a warp waits for two tiles before its next matmul, expected {}: {}", together, first, how),
      "your code waits for a tile too early; it must first issue the matmuls that do not need the tile", "waits-early");
}

void expect_matmuls(double tensor_instructions, const Shape& shape, bool causal, int products, const std::string& how) {
  constexpr std::int64_t side = 16;  // of the matrices that one instruction multiplies
  std::int64_t pairs = 0;
  for (std::int64_t first = 0; first < shape.Nq; first += side) {
    const std::int64_t last = std::min(first + side, shape.Nq) - 1;
    const std::int64_t keys =
        causal ? std::max<std::int64_t>(0, visible_keys(last, shape.Nq, shape.Nk, true)) : shape.Nk;
    pairs += (keys + side - 1) / side;
  }
  const double needed = 2.0 * double(shape.B * shape.H * pairs * (shape.d / side) * products);
  expect(tensor_instructions >= needed,
         fmt::format("the tensor cores execute {} HMMA instructions; the matmuls need {} ({})", tensor_instructions,
                     needed, how),
         "your code computes a matmul without the tensor cores; all matmuls must run on them", "products-by-hand");
}

void expect_no_influence_from_the_future(const Problem& problem, std::int64_t query,
                                         const std::map<std::string, double>& numbers) {
  const Shape& shape = problem.shape;
  const std::int64_t first_hidden = visible_keys(query, shape.Nq, shape.Nk, problem.causal());
  const AttentionResult before = attention(problem, numbers);
  for (const float value : {1e4f, std::numeric_limits<float>::quiet_NaN()}) {
    Problem changed = problem;
    for (std::int64_t b = 0; b < shape.B; ++b) {
      for (std::int64_t h = 0; h < shape.H; ++h) {
        for (std::int64_t j = first_hidden; j < shape.Nk; ++j) {
          std::fill_n(&changed.K(b, h, j, 0), shape.d, value);
          std::fill_n(&changed.V(b, h, j, 0), shape.d, 1e4f);
        }
      }
    }
    const AttentionResult after = attention(changed, numbers);
    for (std::size_t at = 0; at < after.O.values.size(); ++at) {
      const std::int64_t i = std::int64_t(at) / shape.d % shape.Nq;
      if (i > query) continue;
      expect(after.O.values[at] == before.O.values[at],
             fmt::format("O of query {} depends on keys after it: column {} was {} and became {} when keys {} to {} "
                         "became {}",
                         i, std::int64_t(at) % shape.d, before.O.values[at], after.O.values[at], first_hidden,
                         shape.Nk - 1, value),
             "your code lets keys after a query contribute to its O; a masked key must get the score -inf, whatever "
             "its K holds, and so the weight 0",
             "mask");
    }
  }
}

std::int64_t tiles_of(std::int64_t rows, std::int64_t tile) {
  return (rows + tile - 1) / tile;
}

Tensor<float> tensor(const Reply& reply, const std::string& name, std::array<std::int64_t, 4> sizes) {
  Tensor<float> result(sizes);
  result.values = reply.output<float>(name);
  return result;
}

Tensor<double> widened(const Tensor<float>& tensor) {
  Tensor<double> result(tensor.sizes);
  std::copy(tensor.values.begin(), tensor.values.end(), result.values.begin());
  return result;
}

}  // namespace workbook::test
