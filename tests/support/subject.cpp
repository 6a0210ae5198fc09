#include "tests/support/subject.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <optional>
#include <set>

#include "common/attention/element.hpp"
#include "tests/support/context.hpp"
#include "tests/support/outcome.hpp"

namespace workbook::test {
namespace {

using worker::Call;
using worker::Ending;
using worker::Failure;
using worker::Reply;
using worker::Worker;

std::string backend_text() {
  const std::string& backend = context().backend;
  return backend == "cpu" ? "the CPU" : backend == "sim" ? "the simulator" : "the GPU";
}

std::string last_printed;  // what the code under test printed in its last call

/// What the reader's own printf said, for the end of a failure message.
std::string printed_text() {
  std::string text = last_printed;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "" : "\n  your code printed: " + text;
}

/// The first line of every failure message.
std::string headline(const std::string& input) {
  return fmt::format("chapter {}, \"{}\" failed on {}{}", context().chapter, current_test(), backend_text(),
                     input.empty() ? "" : " (" + input + ")");
}

/// Workers that are running, by executable: started once, used by all tests of the run.
Worker& worker_of(const std::string& executable) {
  static std::map<std::string, Worker> workers;
  const auto found = workers.find(executable);
  if (found != workers.end()) return found->second;
  worker::Limits limits;
  if (context().backend == "cuda") limits.memory = 0;  // CUDA reserves far more addresses than it uses
  limits.time = std::chrono::duration<double>(context().time_limit);
  limits.debug = context().debug;
  return workers.emplace(executable, Worker(executable, limits)).first->second;
}

/// How each way to die is reported.
Outcome outcome_of(const Failure& failure, const Call& call) {
  const std::string text = fmt::format("chapter {}, \"{}\": {}\n  the call was {}", context().chapter, current_test(),
                                       failure.what(), call.text());
  switch (failure.ending) {
    case Ending::todo:
      if (failure.todo == current_exercise()) return {"todo", "todo " + failure.todo, "", ""};
      return {"blocked", "blocked by todo " + failure.todo, "", ""};
    case Ending::timed_out:
      return {"timed out", text, "", "timed-out"};
    case Ending::crashed:
    case Ending::exited:
    case Ending::output_flood:
    case Ending::broke_protocol:
    case Ending::not_started:
      return {"crashed", text, "", "crashed"};
    case Ending::wrote_outside:
      return {"failed", text, "an index runs past the end of an array", "wrote-outside"};
    case Ending::changed_input:
      return {"failed", text, "an input was used as scratch memory", "changed-input"};
    case Ending::out_of_memory:
      return {"failed", text, "memory grows with N², or a size is wrong", "out-of-memory"};
    case Ending::threw: {
      const bool outside = std::string(failure.what()).find(" lies outside ") != std::string::npos ||
                           std::string(failure.what()).find(" reach outside ") != std::string::npos;
      return {"failed", text,
              outside ? "an index runs past the end of a matrix: look at the ragged last tile and at "
                        "which index comes first"
                      : "",
              outside ? "read-outside" : "threw"};
    }
    case Ending::refused:
      return {"failed", text, "", "refused"};
    case Ending::unavailable:
      return {"skipped", failure.what(), "", ""};
  }
  return {"failed", text, "", ""};
}

Reply call_worker(const std::string& executable, const Call& call) {
  static std::set<std::string> slow;  // executables that have timed out once: not waited for as long again
  Worker& worker = worker_of(executable);
  if (slow.contains(executable))
    worker.limits().time = std::chrono::duration<double>(std::min(1.0, context().time_limit));
  try {
    Reply reply = worker.call(call);
    last_printed = reply.printed;
    return reply;
  } catch (const Failure& failure) {
    if (failure.ending == Ending::timed_out) slow.insert(executable);
    end_test(outcome_of(failure, call));
  }
}

std::int64_t tile(const std::map<std::string, double>& numbers, const char* name) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : std::int64_t(found->second);
}

}  // namespace

Reply call(const Call& call) {
  if (!context().unavailable.empty()) end_test({"skipped", context().unavailable, "", ""});
  const auto found = context().subjects.find(current_exercise());
  if (found == context().subjects.end()) {
    end_test({"failed", "the run has no code for exercise " + current_exercise() + ": a defect of the book", "", ""});
  }
  const Subject& subject = found->second;
  if (subject.open) end_test({"todo", "todo " + current_exercise(), "", ""});
  if (subject.executable.empty()) end_test({"not compiled", subject.not_compiled, "", "not-compiled"});
  Reply reply = call_worker(subject.executable, call);
  const std::string wanted = context().backend == "cpu" ? "" : context().backend;
  if (reply.device != wanted || (wanted == "cuda" && !reply.device_compiler.starts_with("nvcc "))) {
    end_test({"failed",
              fmt::format("the worker runs kernels on \"{}\", compiled by \"{}\", not on {}: a defect of the book",
                          reply.device, reply.device_compiler, backend_text()),
              "", ""});
  }
  return reply;
}

Reply call_previous(const Call& call) {
  if (context().previous.empty())
    end_test({"not compiled", "the previous chapter, to compare with, could not be built", "", ""});
  return call_worker(context().previous, call);
}

AttentionResult attention(const Problem& problem, const std::map<std::string, double>& numbers) {
  return worker::forward(problem, context().element, numbers, call);
}

AttentionResult previous_attention(const Problem& problem, const std::map<std::string, double>& numbers) {
  return worker::forward(problem, context().previous_element, numbers, call_previous);
}

Problem in_element(const Problem& problem) {
  return rounded_to(problem, context().element);
}

Precision precision() {
  return precision_of(context().element);
}

void require_counters() {
  if (context().counts || context().backend == "cpu") return;
  const char* why =
      context().backend == "sim" ? "accesses are not counted in this build" : "only the simulator counts accesses";
  end_test({"skipped", context().unavailable.empty() ? why : context().unavailable, "", ""});
}

double counter(const Reply& reply, const std::string& name) {
  const auto found = reply.counters.find(name);
  return found == reply.counters.end() ? 0 : found->second;
}

std::string describe(const Problem& problem, const std::string& kind) {
  const Shape& shape = problem.shape;
  std::string text =
      fmt::format("Nq={}, Nk={}, d={}, causal={}", shape.Nq, shape.Nk, shape.d, problem.causal ? "yes" : "no");
  if (shape.B * shape.H > 1) text = fmt::format("B={}, H={}, ", shape.B, shape.H) + text;
  return kind.empty() ? text : text + fmt::format(", input \"{}\"", kind);
}

void expect_close(const Tensor<float>& got, const Expectation& expectation) {
  const book::Comparison comparison = book::compare(got, expectation.expected, expectation.bounds, expectation.layout);
  if (comparison.close) {
    SUCCEED();
    return;
  }
  Outcome outcome{"failed", headline(expectation.input) + "\n" + comparison.text + printed_text(), "", "unknown"};
  if (const auto found = book::diagnose(got, expectation.expected, expectation.bounds, expectation.mistakes)) {
    outcome.likely_cause =
        fmt::format("{}: your output matches that mistake to {:.1g}", found->sentence, found->difference);
    outcome.diagnosis = found->id;
  }
  end_test(std::move(outcome));
}

AttentionResult expect_attention(const Problem& given, const std::string& kind,
                                 const std::map<std::string, double>& numbers) {
  const Problem problem = in_element(given);
  AttentionResult result = attention(problem, numbers);
  const Forward oracle = forward_oracle(problem);
  const std::int64_t Br = tile(numbers, "Br"), Bc = tile(numbers, "Bc");
  std::string input = describe(problem, kind);
  if (Br > 0) input += fmt::format(", Br={}, Bc={}", Br, Bc);
  book::Layout O_layout, lse_layout;
  O_layout.tensor = "O";
  lse_layout.tensor = "lse";
  lse_layout.axes[3] = "";
  for (book::Layout* layout : {&O_layout, &lse_layout}) {
    layout->Br = Br;
    layout->Bc = Bc;
  }
  expect_close(result.O, {oracle.O, output_bounds(oracle, problem, precision()), O_layout,
                          book::output_mistakes(problem, Br, Bc), input});
  expect_close(result.lse, {oracle.lse, lse_bounds(oracle, problem, precision()), lse_layout,
                            book::lse_mistakes(problem, Br, Bc), input});
  return result;
}

void expect(bool condition, const std::string& message, const std::string& cause, const std::string& diagnosis) {
  if (condition) {
    SUCCEED();
    return;
  }
  end_test(
      {"failed", headline("") + "\n  " + message + printed_text(), cause, diagnosis.empty() ? "unknown" : diagnosis});
}

void expect_no_influence_from_the_future(const Problem& problem, std::int64_t query,
                                         const std::map<std::string, double>& numbers) {
  const Shape& shape = problem.shape;
  const std::int64_t first_hidden = visible_keys(query, shape.Nq, shape.Nk, problem.causal);
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
             "the causal mask lets a query see keys that come after it", "mask");
    }
  }
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
