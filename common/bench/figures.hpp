// The figures of a benchmark: which curves go into which. notes/site/figures/charts.mjs draws them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/bench/results.hpp"

namespace workbook::bench {

/// One curve, or a set of points.
struct Curve {
  enum class Style { line_and_points, line, dashed, points };
  std::string title;
  Style style = Style::line_and_points;
  int color = 0;  ///< which one of the pictures' colours; -1: a roof
  int mark = 0;   ///< which form of point: filled and hollow by turns
  std::vector<std::pair<double, double>> points;
};

/// One pair of axes.
struct Panel {
  std::string title, x_label, y_label;
  bool x_log = false, y_log = false;
  bool x_is_length = false;          ///< the ticks of x are powers of two, written out
  std::vector<std::string> x_ticks;  ///< what x = 0, 1, 2, … are called; empty: numbers
  bool y_from_zero = true;           ///< on a linear axis
  std::vector<Curve> curves;
};

/// One file: panels side by side.
struct Figure {
  std::string name;     ///< "speed_forward": the file's name without its ending
  std::string caption;  ///< what it shows, for the page that it stands on
  std::vector<Panel> panels;
};

/// Every figure that these results have something to show in; none without a GPU.
std::vector<Figure> figures(const Results& results);

/// {"kind": "plot", "title", "panels"}: what a figure is drawn from.
nlohmann::ordered_json facts(const Figure& figure);

}  // namespace workbook::bench
