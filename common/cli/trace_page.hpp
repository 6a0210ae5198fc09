// The trace as a page: one HTML file that needs nothing beside it. It carries the modules of notes/site/figures and the
// facts that they draw.
#pragma once

#include <filesystem>
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
/// One kernel, or two side by side. `figures`: the folder with trace.html, trace.mjs and what that imports.
std::string trace_page(const std::filesystem::path& figures, const std::string& title,
                       const std::vector<TraceColumn>& columns);

/// A module of that folder and all that it imports, each before those that import it, as one script: every module is a
/// function whose result, its exports, is modules['NAME.mjs']. Only named imports of files beside it are known, and
/// exports where a name is declared.
std::string bundled(const std::filesystem::path& module);

}  // namespace workbook::cli
