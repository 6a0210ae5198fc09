#include "tests/support/wrong_solutions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <vector>

#include "common/attention/element.hpp"
#include "common/judge/agreement.hpp"
#include "tests/support/context.hpp"
#include "tests/support/outcome.hpp"

namespace workbook::test {
namespace {

using judge::Agreement, judge::Answer;

/// Seconds that one test may spend on running wrong solutions.
constexpr double kMostSeconds = 8;

/// A wrong solution that no call of the running test contradicts.
struct Candidate {
  const WrongSolution* solution;
  std::size_t wrong = 0, wrong_reals = 0;
  double largest = 0, rms = 0;
  bool of_counters = true;  ///< no call showed wrong values
};

struct Comparing {
  std::string test;
  std::vector<Candidate> candidates;
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
    const std::size_t size = call.element_size(name);
    const double precision = call.is_real(name) ? float_precision : size == 2 ? code_precision : 0;
    answer.outputs[name] = {numbers_of(call, name, bytes, size), precision};
  }
  return answer;
}

/// The candidates that agree best. Others with the same id are variants of the same mistake.
std::vector<Candidate> best_candidates() {
  std::vector<Candidate> shown = comparing.candidates;
  std::erase_if(shown, [](const Candidate& each) { return each.wrong < 2; });
  double closest = std::numeric_limits<double>::infinity();
  for (const Candidate& each : shown) closest = std::min(closest, each.rms);
  std::erase_if(shown, [&](const Candidate& each) { return each.rms > 2 * closest + 0.01; });
  return shown;
}

}  // namespace

void compare_with_wrong_solutions(const worker::Call& call, const worker::Reply& reply, const RunVersion& run) {
  const auto subject = context().subjects.find(current_exercise());
  if (subject == context().subjects.end() || subject->second.wrong_executable.empty()) return;
  // The last calls before the failure: earlier ones passed. A test may compare the results of two calls.
  constexpr int compared = 2;
  const auto calls = subject->second.calls.find(current_test());
  if (calls == subject->second.calls.end() || observations_begun() <= calls->second - compared) return;
  if (comparing.test != current_test()) {
    comparing = {current_test(), {}, 0};
    for (const WrongSolution& each : subject->second.wrong) comparing.candidates.push_back({&each});
  }
  if (comparing.candidates.empty() || comparing.seconds > kMostSeconds) return;
  const auto start = std::chrono::steady_clock::now();
  const Answer got = answer_of(call, reply);
  try {
    const Answer books = answer_of(call, run(call, 0));
    if (!is_same(got, books)) {  // a call that is right says little about wrong solutions
      std::erase_if(comparing.candidates, [&](Candidate& each) {
        try {
          const Answer wrong = answer_of(call, run(call, each.solution->version));
          const Agreement found = agreement(got, books, wrong);
          each.wrong += found.wrong;
          each.wrong_reals += found.wrong_reals;
          each.largest = std::max(each.largest, found.largest);
          each.rms = std::max(each.rms, found.rms);
          each.of_counters = each.of_counters && (found.verdict != Agreement::agrees || found.of_counters);
          return found.verdict == Agreement::contradicts;
        } catch (const worker::Failure&) {
          return true;  // it does not return, but the code under test does
        }
      });
    }
  } catch (const worker::Failure&) {
    comparing.candidates.clear();  // the book's solution does not support the call
  }
  comparing.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::optional<judge::Cause> agreeing_wrong_solution() {
  if (comparing.test != current_test()) return {};
  const std::vector<Candidate> best = best_candidates();
  if (best.empty()) return {};
  const Candidate& first = best.front();
  judge::Cause cause{first.solution->id, first.solution->sentence, ""};
  for (const Candidate& each : best) {
    const std::string& id = each.solution->id;
    if (id == cause.id || std::ranges::count(cause.also, id) > 0) continue;
    cause.also.push_back(id);
    if (cause.also.size() <= 2) cause.sentence += ", or: " + each.solution->sentence;
  }
  if (cause.also.size() > 2)
    cause.sentence += fmt::format(", or one of {} other mistakes that look the same here", cause.also.size() - 2);
  if (first.wrong_reals == 0 && !cause.also.empty()) return {};  // many mistakes give NaN
  cause.of_cost = first.of_counters;
  if (first.of_counters)
    cause.measure = "all counters are those of that mistake";
  else if (first.wrong_reals == 0)
    cause.measure = "NaN is where that mistake gives NaN, and all numbers are right";
  else if (first.largest == 0)
    cause.measure = "your output equals that mistake's exactly";
  else
    cause.measure = fmt::format("your output equals that mistake's to {:.1g}", first.largest);
  return cause;
}

}  // namespace workbook::test
