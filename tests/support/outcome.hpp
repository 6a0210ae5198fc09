// How a chapter's test ends, and who is told: a Catch2 listener writes one JSON line a test on descriptor 3. No exit
// code and no text is parsed; a run without its closing line has crashed.
//
//   {"event": "start", "test": NAME}
//   {"event": "end", "verdict": {…}, "calls": 3}    as common/judge/verdict.hpp has it; calls of the code under test.
//                                                   "evidence": […] in a run beside known wrong solutions
//                                                   (agreement.hpp)
//   {"event": "done"}
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/judge/agreement.hpp"
#include "common/judge/verdict.hpp"

namespace workbook::test {

using judge::Cause, judge::Result;

/// How a test ended.
struct Outcome {
  Result result = Result::failed;
  std::string message = {};         ///< for the reader
  std::optional<Cause> cause = {};  ///< nothing if it cannot be told
  std::string blocked_by = {};      ///< of a blocked test: the open exercise
  std::vector<simt::Report> reports = {};
  std::size_t reports_left_out = 0;
  bool unavailable = false;  ///< of a skipped test: the backend cannot run here
};

/// What is found out from here on is about a call with these numbers.
void begin_observation(const std::map<std::string, double>& numbers);
/// The number of observations of the running test that have begun.
int observations_begun();
judge::Observation& current_observation();

/// The running test gives the code under test an input of this kind.
void note_kind(const std::string& kind);

/// Sets the function that gives a test's evidence about known wrong solutions (wrong_solutions.hpp).
void show_evidence_of(std::optional<std::vector<judge::Evidence>> (*function)());

/// Ends the running test with this outcome.
[[noreturn]] void end_test(Outcome outcome);

/// What the code under test has printed, for a test that passes: the last of it is its message.
void note_printed(const std::string& text);

/// The running test: its name, and the exercise that it belongs to: the tag [1.1], or "whole".
const std::string& current_test();
const std::string& current_exercise();

}  // namespace workbook::test
