// The part of the trace's page that follows one row: what the kernel noted of it (note_value), from interval to
// interval, against what it comes to in the end.
#pragma once

#include <string>

#include "common/judge/trace_launch.hpp"

namespace workbook::cli {

/// A choice of rows, and a table of the chosen row's values, in which the slider's interval is marked; for scripts
/// alone. Empty for a launch that noted none.
std::string rows_html(const judge::TracedLaunch& launch);
extern const char* const rows_style;
extern const char* const rows_script;

}  // namespace workbook::cli
