// The part of the trace's page that one can scrub through: block 0 of a launch, interval by interval.
#pragma once

#include <string>

#include "common/judge/trace_launch.hpp"

namespace workbook::cli {

/// A timeline, a slider, and for each interval what happens in it and what has been moved by its end. Without scripts
/// all intervals are listed. Empty for a launch without intervals.
std::string time_html(const judge::TracedLaunch& launch);
extern const char* const time_style;
/// What the sliders do; once a page.
extern const char* const time_script;

}  // namespace workbook::cli
