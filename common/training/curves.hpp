// The loss curves of an experiment: their numbers, and the facts that a plot of them is drawn from.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/training/train.hpp"

namespace workbook::training {

/// A line a step: loss, scale and whether it was skipped, of each run.
std::string losses_csv(const Trained& trained);
/// {"kind": "plot", "title", "panels"}.
nlohmann::ordered_json losses_facts(const Trained& trained);

}  // namespace workbook::training
