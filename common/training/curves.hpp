// The loss curves of an experiment as files: numbers, and a plot of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/training/train.hpp"

namespace workbook::training {

struct CurveFiles {
  std::vector<std::string> paths;
  std::string note;  ///< why there is no plot; empty if there is one, or nothing to draw
};
/// losses.csv, losses.gnuplot, and losses.svg if there is gnuplot.
CurveFiles write_curves(const std::filesystem::path& folder, const Trained& trained);

}  // namespace workbook::training
