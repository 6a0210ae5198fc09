// The trace as a page: one HTML file that needs nothing beside it, for light and dark screens.
#pragma once

#include <string>
#include <vector>

#include "common/judge/trace_lines.hpp"

namespace workbook::cli {

/// One kernel's run.
struct TraceColumn {
  std::string title;  ///< "Chapter 3: Tiled WMMA (your code, on the simulator)"
  std::string input;  ///< "Attention over …"
  const judge::Trace* trace = nullptr;
  std::vector<judge::ComparedPart> parts;  ///< by source line
  std::vector<judge::TraceBeside> beside;  ///< what the parts are compared with
};
/// One kernel, or two side by side.
std::string trace_page(const std::string& title, const std::vector<TraceColumn>& columns);

}  // namespace workbook::cli
