// The result of a test. A verdict is data: code that judges, grades or prints uses its fields and never parses its
// sentences. One codec converts it to JSON and back for test programs, grading's records and --json.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/judge/observation.hpp"
#include "common/simt/report.hpp"
#include "common/worker/backend.hpp"

namespace workbook::judge {

/// How a test ended, in order of severity.
enum class Result {
  passed,
  skipped,  ///< the test cannot run here
  todo,     ///< the exercise is open
  blocked,  ///< another exercise is open, or fails
  failed,   ///< the answer is wrong
  crashed,  ///< the code under test ended the process
  timed_out,
  not_compiled,
};
inline constexpr Result kResults[] = {Result::passed, Result::skipped, Result::todo,      Result::blocked,
                                      Result::failed, Result::crashed, Result::timed_out, Result::not_compiled};
/// "passed", "timed out", …, for messages and JSON.
const char* name(Result result);
/// std::invalid_argument for any other text.
Result result_named(std::string_view name);
/// The more severe of two results.
inline Result worse(Result a, Result b) {
  return a < b ? b : a;
}

/// A line of a source file.
struct SourceLocation {
  std::string file;  ///< relative to the book
  int line = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SourceLocation, file, line)

/// The diagnosed cause of a failure.
struct Cause {
  /// "5.1/3": a known wrong solution (book/mutants.hpp); "race", "tiles-skipped": what the simulator or a test names
  std::string id;
  std::string sentence;  ///< "your code does not scale the scores; it must multiply them by 1/√d"
  std::string measure;   ///< the evidence: "your output equals that mistake to 3e-7"; may be empty
  /// Ids of other mistakes that look the same in this test; the sentence names the first of them.
  std::vector<std::string> also = {};
  bool of_cost = false;  ///< a counter is wrong: accesses, barriers, instructions
  /// The text for a reader: the sentence, then the evidence in parentheses.
  std::string text() const;
};
// Records of earlier gradings lack fields that were added later.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Cause, id, sentence, measure, also, of_cost)

/// The id of an unknown cause.
inline constexpr const char* kUnknown = "unknown";

struct Verdict {
  std::string chapter;   ///< "04_q_split"
  std::string exercise;  ///< "4.2", or kWhole
  std::string test;
  Backend backend = Backend::cpu;
  Result result = Result::failed;
  bool hidden = false;   ///< an instructor's hidden test, of which reports omit message, measure and reports
  bool finished = true;  ///< the test program has reached the end of this test
  std::string message;   ///< for the reader; of a passed test, its measurements
  std::optional<Cause> cause;
  std::vector<simt::Report>
      reports;  ///< the simulator's, with the reader's source locations; the message contains their text
  std::size_t reports_left_out = 0;       ///< the number of further reports
  std::vector<Observation> observations;  ///< the calls in order, without duplicates, at most kMostObservations
  std::set<std::string> kinds;            ///< kinds of input that the code has received (common/attention/inputs.hpp)
  bool unavailable = false;               ///< skipped test: the backend cannot run here
  std::string blocked_by;                 ///< blocked test: the exercise that is open, or fails
  std::optional<SourceLocation> place;    ///< location for the reader; empty for the whole chapter
  double seconds = 0;

  /// The cause's id; kUnknown without a cause.
  std::string cause_id() const { return cause ? cause->id : kUnknown; }
};
inline constexpr std::size_t kMostObservations = 100;
/// The exercise id of tests that run on the chapter as a whole.
inline constexpr const char* kWhole = "whole";

/// Every field; a missing cause or place is null. Text that is not valid UTF-8 is kept: dump with `replace`.
nlohmann::json to_json(const Verdict& verdict);
/// nlohmann::json::exception or std::invalid_argument for a document that is not a verdict.
Verdict verdict_from_json(const nlohmann::json& json);

}  // namespace workbook::judge
