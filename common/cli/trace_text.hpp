// The trace on the terminal: tables and tile maps of each launch.
#pragma once

#include "common/cli/session.hpp"
#include "common/judge/trace_launch.hpp"

namespace workbook::cli {

/// `metrics`: every counter with Nsight Compute's name for it.
void print_trace(const Session& session, const judge::Trace& trace, bool metrics);

}  // namespace workbook::cli
