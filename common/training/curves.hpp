// The loss curves of an experiment, as CSV and as the facts of a plot.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/training/train.hpp"

namespace workbook::training {

/// One line per step, with the loss, the scale and whether the step was skipped, for each run.
std::string losses_csv(const Trained& trained);
/// {"kind": "plot", "title", "panels"}.
nlohmann::ordered_json losses_facts(const Trained& trained);

}  // namespace workbook::training
