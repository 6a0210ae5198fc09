// The figures of a benchmark: which curves go into which. notes/site/figures/charts.mjs draws them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/bench/results.hpp"

namespace workbook::bench {

/// One curve, or a set of points.
struct Curve {
  enum class Style { line_and_points, line, dashed, points, roof };
  std::string title;
  Style style = Style::line_and_points;
  int form = 0;  ///< of points: twice the index of d, and 1 more if causal
  std::vector<std::pair<double, double>> points;
};

/// One pair of axes.
struct Panel {
  std::string title, x_label, y_label;
  bool x_log = false, y_log = false;
  bool x_is_length = false;          ///< the ticks of x are powers of two, written out
  std::vector<std::string> x_ticks;  ///< labels of x = 0, 1, 2, …; empty: numbers
  bool y_from_zero = true;           ///< on a linear axis
  std::vector<Curve> curves;
};

/// One file: panels side by side.
struct Figure {
  std::string name;     ///< "speed_forward": the file's name without its extension
  std::string caption;  ///< caption for the page that contains it
  std::vector<Panel> panels;
};

/// Every figure for which these results have data; none without a GPU.
std::vector<Figure> figures(const Results& results);

/// {"kind": "plot", "title", "panels"}: the data that a figure is drawn from.
nlohmann::ordered_json facts(const Figure& figure);

}  // namespace workbook::bench
