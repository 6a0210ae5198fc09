// The trace on the terminal: tables and tile maps of each launch.
#pragma once

#include "common/cli/session.hpp"
#include "common/judge/trace_lines.hpp"

namespace workbook::cli {

/// `metrics`: every counter with Nsight Compute's name for it.
void print_trace(const Session& session, const judge::Trace& trace, bool metrics);

/// The memory requests of each source line, part by part.
void print_lines(const Session& session, const std::vector<judge::ComparedPart>& parts,
                 const std::vector<judge::TraceBeside>& beside);

}  // namespace workbook::cli
