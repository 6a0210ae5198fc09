// How a chapter's test ends, and who is told: a Catch2 listener writes one JSON line a test on descriptor 3. No exit
// code and no text is parsed; a run without its closing line has crashed.
//
//   {"event": "start", "test": NAME}
//   {"event": "end", "test": NAME, "exercise": "1.1" | "whole", "result": "passed" | "failed" | …, "message",
//    "likely_cause", "diagnosis", "seconds"}
//   {"event": "done"}
#pragma once

#include <string>

namespace workbook::test {

/// Why a test did not pass.
struct Outcome {
  std::string result;        ///< "failed", "todo", "blocked", "crashed", "timed out", "not compiled", …
  std::string message;       ///< for the reader
  std::string likely_cause;  ///< the diagnosis in a sentence; empty if it cannot be told
  std::string diagnosis;     ///< its id
};

/// Ends the running test with this outcome.
[[noreturn]] void end_test(Outcome outcome);

/// The running test: its name, and the exercise that it belongs to: the tag [1.1], or "whole".
const std::string& current_test();
const std::string& current_exercise();

}  // namespace workbook::test
