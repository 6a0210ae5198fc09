// What a test came to. A verdict is data: whoever judges, grades or prints decides by its fields, never by a sentence
// in it. One codec to JSON and back, which test programs, grading's records and --json share.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/judge/trial.hpp"
#include "common/simt/report.hpp"
#include "common/worker/backend.hpp"

namespace workbook::judge {

/// How a test ended, in the order of severity: where several differ, the last one says most about what is wrong.
enum class Result {
  passed,
  skipped,  ///< it cannot run here
  todo,     ///< its exercise is open
  blocked,  ///< another exercise is open
  failed,   ///< the answer is wrong
  crashed,  ///< the code under test ended the process
  timed_out,
  not_compiled,
};
inline constexpr Result kResults[] = {Result::passed, Result::skipped, Result::todo,      Result::blocked,
                                      Result::failed, Result::crashed, Result::timed_out, Result::not_compiled};
/// "passed", "timed out", …: for people and in JSON.
const char* name(Result result);
/// std::invalid_argument for another text.
Result result_named(std::string_view name);
/// Of two results the one that says more about what is wrong.
inline Result worse(Result a, Result b) {
  return a < b ? b : a;
}

/// A line of a source file.
struct SourcePlace {
  std::string file;  ///< relative to the book
  int line = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SourcePlace, file, line)

/// Why a test failed, as far as it can be told.
struct Cause {
  std::string id;        ///< "no-scale": the id of a known mistake
  std::string sentence;  ///< "the scores are not multiplied by the scale 1/√d"
  std::string measure;   ///< "your output equals that mistake to 3e-7": how it was found out; may be empty
  /// Ids of other mistakes that look the same in this test; the sentence has named the first of them.
  std::vector<std::string> also = {};
  bool of_cost = false;  ///< what was counted is off: accesses, barriers, instructions
  /// For a reader: the sentence, then how it was found out.
  std::string text() const { return measure.empty() ? sentence : sentence + ": " + measure; }
};
// Records of earlier gradings lack what came later.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Cause, id, sentence, measure, also, of_cost)

/// What stands in place of a cause's id where it cannot be told.
inline constexpr const char* kUnknown = "unknown";

struct Verdict {
  std::string chapter;   ///< "04_q_split"
  std::string exercise;  ///< "4.2", or kWhole
  std::string test;
  Backend backend = Backend::cpu;
  Result result = Result::failed;
  bool hidden = false;   ///< one of an instructor's hidden tests: reports show no message, measure or report of it
  bool finished = true;  ///< the test program got to this test's end
  std::string message;   ///< for the reader; of a passed test what it has measured
  std::optional<Cause> cause;
  std::vector<simt::Report>
      reports;                       ///< the simulator's, places as the reader knows them; the message holds their text
  std::size_t reports_left_out = 0;  ///< so many more there were
  std::vector<Trial> trials;         ///< what it has tried, in order; equal ones once, at most kMostTrials
  std::set<std::string> kinds;       ///< of input that it has given the code (common/attention/inputs.hpp)
  bool unavailable = false;          ///< of a skipped test: the backend cannot run here
  std::string blocked_by;            ///< of a blocked test: the exercise that is open
  std::optional<SourcePlace> place;  ///< where to look; nothing for the whole chapter
  double seconds = 0;

  /// The cause's id; kUnknown if it cannot be told.
  std::string cause_id() const { return cause ? cause->id : kUnknown; }
};
inline constexpr std::size_t kMostTrials = 100;
/// The exercise of tests that run on the chapter as a whole.
inline constexpr const char* kWhole = "whole";

/// Every field, a missing cause or place as null. Text that is no UTF-8 stays as it is: dump with `replace`.
nlohmann::json to_json(const Verdict& verdict);
/// nlohmann::json::exception or std::invalid_argument for a document that is none.
Verdict verdict_from_json(const nlohmann::json& json);

}  // namespace workbook::judge
