#include "tests/support/outcome.hpp"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/interfaces/catch_interfaces_reporter.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace workbook::test {
namespace {

using nlohmann::json;

struct TestEnded : std::exception {
  const char* what() const noexcept override { return "the test has ended"; }
};

struct Running {
  std::string test, exercise;
  std::optional<Outcome> outcome;
  std::vector<judge::Observation> observations;
  int calls = 0;
  std::string assertions;  // failed CHECKs that are not ours
  std::string printed;     // by the code under test
  std::set<std::string> kinds;
  std::chrono::steady_clock::time_point start;
};
Running running;
std::optional<std::vector<judge::Evidence>> (*evidence_of)() = nullptr;

/// What a verdict keeps of them.
std::vector<judge::Observation> judged(const std::vector<judge::Observation>& observations) {
  std::vector<judge::Observation> kept;
  for (const judge::Observation& observation : observations) {
    const bool room = kept.size() < judge::kMostObservations || observation.wrong();
    if (observation.judged() && room && std::ranges::find(kept, observation) == kept.end()) kept.push_back(observation);
  }
  return kept;
}

/// To the command's descriptor 3, which it announces; in a run by hand nothing is written.
void write_line(const json& line) {
  static const bool announced = std::getenv("WORKBOOK_RESULTS") != nullptr;
  if (!announced) return;
  const std::string text = line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(3, text.data() + done, text.size() - done);
    if (count <= 0) return;
    done += std::size_t(count);
  }
}

class Listener : public Catch::EventListenerBase {
 public:
  using EventListenerBase::EventListenerBase;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    running = Running{};
    running.test = info.name;
    running.exercise = judge::kWhole;
    for (const Catch::Tag& tag : info.tags) {
      const std::string text(tag.original.data(), tag.original.size());
      if (text.find('.') != std::string::npos && text.find_first_not_of("0123456789.") == std::string::npos) {
        running.exercise = text;
      }
    }
    running.start = std::chrono::steady_clock::now();
    write_line({{"event", "start"}, {"test", running.test}});
  }

  void assertionEnded(const Catch::AssertionStats& stats) override {
    if (stats.assertionResult.isOk() || running.outcome) return;
    running.assertions += "  " + std::string(stats.assertionResult.getExpressionInMacro()) + "\n";
    if (stats.assertionResult.hasExpandedExpression()) {
      running.assertions += "    " + stats.assertionResult.getExpandedExpression() + "\n";
    }
    const auto message = stats.assertionResult.getMessage();
    if (!message.empty()) running.assertions += "    " + std::string(message.data(), message.size()) + "\n";
    for (const Catch::MessageInfo& info : stats.infoMessages) running.assertions += "    " + info.message + "\n";
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    Outcome outcome{Result::passed};
    if (running.outcome) {
      outcome = *running.outcome;
    } else if (!stats.totals.assertions.allOk()) {
      outcome.result = Result::failed;
      outcome.message = running.assertions;
    } else if (stats.totals.assertions.skipped > 0) {
      outcome.result = Result::skipped;
    } else if (stats.totals.assertions.passed == 0) {
      outcome.result = Result::failed;
      outcome.message = "the test asserted nothing: a defect of the book";
    }
    if (outcome.result == Result::passed && outcome.message.empty()) outcome.message = running.printed;
    judge::Verdict verdict;
    verdict.test = running.test;
    verdict.exercise = running.exercise;
    verdict.result = outcome.result;
    verdict.message = outcome.message;
    verdict.cause = outcome.cause;
    verdict.blocked_by = outcome.blocked_by;
    verdict.reports = outcome.reports;
    verdict.reports_left_out = outcome.reports_left_out;
    verdict.unavailable = outcome.unavailable;
    verdict.observations = judged(running.observations);
    verdict.kinds = running.kinds;
    verdict.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - running.start).count();
    json event{{"event", "end"}, {"verdict", judge::to_json(verdict)}, {"calls", running.calls}};
    if (evidence_of != nullptr)
      if (const auto evidence = evidence_of()) event["evidence"] = *evidence;
    write_line(event);
  }

  void testRunEnded(const Catch::TestRunStats&) override { write_line({{"event", "done"}}); }
};
CATCH_REGISTER_LISTENER(Listener)

}  // namespace

void begin_observation(const std::map<std::string, double>& numbers) {
  running.observations.emplace_back().numbers = numbers;
  ++running.calls;
}
int observations_begun() {
  return running.calls;
}
judge::Observation& current_observation() {
  if (running.observations.empty()) running.observations.emplace_back();
  return running.observations.back();
}
void show_evidence_of(std::optional<std::vector<judge::Evidence>> (*function)()) {
  evidence_of = function;
}
void note_printed(const std::string& text) {
  if (!text.empty()) running.printed = text.substr(text.find_first_not_of("\n "));
}
void note_kind(const std::string& kind) {
  running.kinds.insert(kind);
}
void end_test(Outcome outcome) {
  running.outcome = std::move(outcome);
  // To Catch2 what did not fail has not failed either: a run until the first failure goes on.
  if (running.outcome->result <= Result::skipped) SKIP();
  throw TestEnded();
}
const std::string& current_test() {
  return running.test;
}
const std::string& current_exercise() {
  return running.exercise;
}

}  // namespace workbook::test
