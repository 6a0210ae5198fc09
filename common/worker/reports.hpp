// The simulator's reports as JSON: in a worker's reply, in a verdict, in what grading keeps. Every field, each report
// whole.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "common/simt/report.hpp"

namespace workbook::worker {

nlohmann::json reports_json(const std::vector<simt::Report>& reports);
/// nlohmann::json::exception or std::invalid_argument for a document that is none.
std::vector<simt::Report> reports_from_json(const nlohmann::json& json);

}  // namespace workbook::worker
