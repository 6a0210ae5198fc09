// A trace as JSON: what --json prints, and what the page is fed with.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "common/judge/trace_lines.hpp"

namespace workbook::cli {

/// One launch: counters, tensors, notes, maps.
nlohmann::json launch_json(const judge::TracedLaunch& launch);
/// Costs by part and line; "beside": by the names of the kernels, null where there is no counterpart.
nlohmann::json lines_json(const std::vector<judge::ComparedPart>& parts, const std::vector<judge::TraceBeside>& beside);

}  // namespace workbook::cli
