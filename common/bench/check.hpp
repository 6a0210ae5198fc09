// Checks that the timed results are right: the worker returns part of its inputs and results, which are compared with
// float64. A time is valid only with correct results.
#pragma once

#include <string>

#include "common/bench/results.hpp"
#include "common/worker/worker.hpp"

namespace workbook::bench {

/// Makes the operation "bench" return the last rows of the last head and the inputs they depend on
/// (common/cuda/timing.hpp): adds the number "rows" and the outputs.
void add_checked_outputs(worker::Call& call, const Shape& shape);

/// Checks them; returns what is wrong, or an empty text. O and the LSE must meet the bounds of all tests, dQ, dK and dV
/// a relative error.
std::string what_is_wrong(const worker::Reply& reply, const Point& point);

}  // namespace workbook::bench
