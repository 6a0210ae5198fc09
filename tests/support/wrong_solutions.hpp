// Finds out which of the book's known wrong solutions of an exercise gives what the code under test has given: each
// call of a test is repeated with them, on the simulator or the CPU.
#pragma once

#include <functional>
#include <optional>

#include "common/judge/verdict.hpp"
#include "common/worker/worker.hpp"

namespace workbook::test {

/// Runs a call with a version of the program that holds the wrong solutions. Throws worker::Failure.
using RunVersion = std::function<worker::Reply(worker::Call call, int version)>;

/// Compares the reply to a call of the running test with those of the known wrong solutions of its exercise. Does
/// nothing if the context names none. Wrong solutions that an earlier call has excluded are not run again.
void compare_with_wrong_solutions(const worker::Call& call, const worker::Reply& reply, const RunVersion& run);

/// The cause: the wrong solution that agrees with all calls of the running test and shows its mistake in at least one.
/// If several with different sentences agree equally well, the first, and the others in `also`. Nothing if none does,
/// or if a single element or nothing but NaN is the evidence.
std::optional<judge::Cause> agreeing_wrong_solution();

}  // namespace workbook::test
