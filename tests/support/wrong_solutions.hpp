// Finds out which of the book's known wrong solutions of an exercise gives what the code under test has given: each
// call of a test is repeated with them, on the simulator or the CPU.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "common/judge/agreement.hpp"
#include "common/worker/worker.hpp"

namespace workbook::test {

/// Runs a call with a version of the program that holds the wrong solutions, for at most so many seconds (0: as usual).
/// Throws worker::Failure.
using RunVersion = std::function<worker::Reply(worker::Call call, int version, double seconds)>;

/// Compares the reply to a call of the running test, or the reports instead of one, with those of the known wrong
/// solutions of its exercise. Does nothing if the context names none. Wrong solutions that an earlier call has excluded
/// are not run again.
void compare_with_wrong_solutions(const worker::Call& call, const worker::Reply& reply, const RunVersion& run);
void compare_with_wrong_solutions(const worker::Call& call, const worker::Failure& failure, const RunVersion& run);

/// The wrong solutions that no call of the running test contradicts; nothing if none was compared.
std::optional<std::vector<judge::Evidence>> evidence_of_test();

}  // namespace workbook::test
