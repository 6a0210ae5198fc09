// A trace as JSON, as --json prints it and the page receives it.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "common/judge/trace_lines.hpp"

namespace workbook::cli {

/// One launch: counters, tensors, notes, maps.
nlohmann::json launch_json(const judge::TracedLaunch& launch);
/// Costs by part and line; "beside": by kernel name, null without a counterpart.
nlohmann::json lines_json(const std::vector<judge::ComparedPart>& parts, const std::vector<judge::TraceBeside>& beside);

}  // namespace workbook::cli
