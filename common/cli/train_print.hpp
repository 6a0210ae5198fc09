// Prints the runs of `train`, for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/cli/session.hpp"
#include "common/training/train.hpp"

namespace workbook::cli {

/// code: whose attention is used, as text.
void print_results(const Session& session, const training::Experiment& experiment, const std::string& code,
                   const training::Trained& trained);

/// files: the files written.
nlohmann::json results_json(const training::Experiment& experiment, const training::Trained& trained,
                            const std::vector<std::string>& files);

}  // namespace workbook::cli
