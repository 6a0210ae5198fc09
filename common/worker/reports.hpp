// The simulator's reports as JSON, with all fields: in a worker's reply, in a verdict, and in grading's records.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "common/simt/report.hpp"

namespace workbook::worker {

nlohmann::json reports_json(const std::vector<simt::Report>& reports);
/// nlohmann::json::exception or std::invalid_argument for a document that does not contain reports.
std::vector<simt::Report> reports_from_json(const nlohmann::json& json);

}  // namespace workbook::worker
