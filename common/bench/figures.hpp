// The figures of a benchmark, as gnuplot draws them: SVG and PNG. Which curves go into which figure, and how a figure
// becomes a script.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/bench/results.hpp"

namespace workbook::bench {

/// One curve, or a set of points.
struct Curve {
  enum class Style { line_and_points, line, dashed, points };
  std::string title;
  Style style = Style::line_and_points;
  int color = 0;  ///< which one of the figure's colours
  int mark = 0;   ///< which form of point
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

/// A gnuplot script that draws the figure into `file`; its terminal follows the ending, ".svg" or ".png".
std::string gnuplot_script(const Figure& figure, const std::filesystem::path& file);

/// Draws each figure as .svg and .png in `folder`, which is there. std::runtime_error with what gnuplot said if it
/// fails, and if it is not installed.
void draw(const std::vector<Figure>& figures, const std::filesystem::path& folder);
/// Whether gnuplot is installed.
bool can_draw();

}  // namespace workbook::bench
