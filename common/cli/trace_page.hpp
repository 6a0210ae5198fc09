// The trace as a page: one HTML file that needs nothing beside it, for light and dark screens.
#pragma once

#include <string>
#include <vector>

#include "common/judge/trace_lines.hpp"

namespace workbook::cli {

/// What the page shows.
struct TracePage {
  std::string title;  ///< "Chapter 3: Tiled WMMA (your code, on the simulator)"
  std::string input;  ///< "Attention over …"
  const judge::Trace* trace = nullptr;
  const std::vector<judge::ComparedPart>* parts = nullptr;  ///< by source line
  const std::vector<judge::TraceBeside>* beside = nullptr;  ///< what the parts are compared with
};
std::string trace_page(const TracePage& page);

}  // namespace workbook::cli
