#include "tests/support/wrong_solutions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "common/attention/element.hpp"
#include "common/judge/agreement.hpp"
#include "tests/support/context.hpp"
#include "tests/support/outcome.hpp"

namespace workbook::test {
namespace {

using judge::Agreement, judge::Answer;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Comparing {
  std::string test;
  std::vector<judge::Evidence> candidates;  ///< the wrong solutions that no call has contradicted
  bool compared = false;
  double seconds = 0;
};
Comparing comparing;

std::vector<double> numbers_of(const worker::Call& call, const std::string& name, const std::vector<std::byte>& bytes,
                               std::size_t element_size) {
  const auto widened = [&]<class T>(T) {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return std::vector<double>(values.begin(), values.end());
  };
  if (call.is_real(name)) return element_size == sizeof(float) ? widened(float()) : widened(double());
  if (element_size == 2) {
    std::vector<std::uint16_t> codes(bytes.size() / 2);
    if (!codes.empty()) std::memcpy(codes.data(), bytes.data(), bytes.size());
    const bool bf16 = context().element == bfloat16 || call.operation().ends_with("_bfloat16");
    const std::vector<float> values = from_codes(codes, bf16 ? bfloat16 : float16);
    return {values.begin(), values.end()};
  }
  if (element_size == 1) return widened(std::uint8_t());
  return element_size == 4 ? widened(std::int32_t()) : widened(std::int64_t());
}

/// A reply as an answer. Sums in another order differ by a few roundings of P and O, whose element has 8 to 11 bits.
Answer answer_of(const worker::Call& call, const worker::Reply& reply) {
  constexpr double float_precision = 1e-4, code_precision = 1e-3;
  Answer answer;
  answer.counters = reply.counters;
  for (const auto& [name, bytes] : reply.outputs) {
    if (name == "trace") continue;  // the record of a run: it names source lines
    const std::size_t size = call.element_size(name);
    const double precision = call.is_real(name) ? float_precision : size == 2 ? code_precision : 0;
    answer.outputs[name] = {numbers_of(call, name, bytes, size), precision};
  }
  return answer;
}

/// Nothing but the reports, if the simulator has any.
std::optional<Answer> answer_of(const worker::Failure& failure) {
  if (failure.ending != worker::Ending::reported) return {};
  return Answer{{}, {}, failure.reports};
}

std::optional<Answer> run_answer(const worker::Call& call, const RunVersion& run, int version, double seconds) {
  try {
    return answer_of(call, run(call, version, seconds));
  } catch (const worker::Failure& failure) {
    return answer_of(failure);
  }
}

void compare(const worker::Call& call, const Answer& got, const RunVersion& run) {
  const auto subject = context().subjects.find(current_exercise());
  if (subject == context().subjects.end() || subject->second.wrong_executable.empty()) return;
  // The last calls before the failure: earlier ones passed. A test may compare the results of two calls.
  constexpr int compared = 2;
  const auto calls = subject->second.calls.find(current_test());
  if (calls == subject->second.calls.end() || observations_begun() <= calls->second - compared) return;
  if (comparing.test != current_test()) {
    const bool fresh = comparing.test.empty() || !subject->second.wrong_once;
    std::vector<judge::Evidence> candidates;
    for (const int version : subject->second.wrong)
      if (fresh || std::ranges::count(comparing.candidates, version, &judge::Evidence::version) > 0)
        candidates.push_back({version});
    comparing = {current_test(), std::move(candidates)};
  }
  if (comparing.candidates.empty() || comparing.seconds > subject->second.wrong_seconds) return;
  const Clock::time_point start = Clock::now();
  if (const auto books = run_answer(call, run, 0, 0)) {
    // A wrong solution may not end. After one that did not, the next waits for a new process.
    const double patience = std::max({1.0, subject->second.wrong_seconds / 20, 20 * seconds_since(start)});
    std::erase_if(comparing.candidates, [&](judge::Evidence& each) {
      if (seconds_since(start) > subject->second.wrong_seconds) return true;
      const auto wrong = run_answer(call, run, each.version, patience);
      if (!wrong) return true;  // it does not return, but the code under test does
      const Agreement found = agreement(got, *books, *wrong);
      each.add(found);
      return found.verdict == Agreement::contradicts;
    });
    comparing.compared = true;
  } else {
    comparing.candidates.clear();  // the book's solution does not support the call
  }
  comparing.seconds += seconds_since(start);
}

}  // namespace

void compare_with_wrong_solutions(const worker::Call& call, const worker::Reply& reply, const RunVersion& run) {
  compare(call, answer_of(call, reply), run);
}

void compare_with_wrong_solutions(const worker::Call& call, const worker::Failure& failure, const RunVersion& run) {
  if (const auto got = answer_of(failure)) compare(call, *got, run);
}

std::optional<std::vector<judge::Evidence>> evidence_of_test() {
  if (comparing.test != current_test() || !comparing.compared) return {};
  return comparing.candidates;
}

}  // namespace workbook::test
