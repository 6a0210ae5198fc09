// Whether what was timed is right: the worker gives back a part of its inputs and results, and it is compared with
// float64 here. A time counts only with a right answer.
#pragma once

#include <string>

#include "common/bench/results.hpp"
#include "common/worker/worker.hpp"

namespace workbook::bench {

/// Makes the operation "bench" give back the last rows of the last head, or what they depend on
/// (common/cuda/timing.hpp): adds the number "rows", and the outputs.
void add_checked_outputs(worker::Call& call, const Shape& shape);

/// What is wrong with them; empty if nothing is. O and the LSE are held to the bounds of every test, dQ, dK and dV to a
/// relative error.
std::string what_is_wrong(const worker::Reply& reply, const Point& point);

}  // namespace workbook::bench
