// The parts of the trace's page that name source lines: what each line asked for, the banks of its worst access, and
// which warp waits where.
#pragma once

#include <string>
#include <vector>

#include "common/judge/trace_lines.hpp"

namespace workbook::cli {

/// Tables of all parts; where there are bank conflicts, a choice of lines, whose worst access is drawn.
std::string lines_html(const std::vector<judge::ComparedPart>& parts, const std::vector<judge::TraceBeside>& beside);
/// Block 0's warps down, and across its waits in the simulator's order; empty if nobody waits.
std::string waits_html(const judge::TracedLaunch& launch);
/// Who waits in one interval: "warps 0-3 at line 92 (__syncthreads)"; empty if nobody does.
std::string waits_text(const judge::TracedLaunch& launch, std::size_t interval);

/// A table as the page has them.
std::string table_html(const judge::TraceTable& table);

extern const char* const places_style;
/// What the choice of a line does; once a page.
extern const char* const places_script;

}  // namespace workbook::cli
