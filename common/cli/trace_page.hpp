// The trace as a page: one self-contained HTML file. It includes the modules of notes/site/figures and the data that
// they draw.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/judge/trace_lines.hpp"

namespace workbook::cli {

/// One kernel's run.
struct TraceColumn {
  std::string title;   ///< "Chapter 3: Tiled WMMA (your code, on the simulator)"
  std::string lesson;  ///< the chapter's, relative to the page
  std::string input;   ///< "Attention over …"
  const judge::Trace* trace = nullptr;
  std::vector<judge::ComparedPart> parts;  ///< by source line
  std::vector<judge::TraceBeside> beside;  ///< the traces that the parts are compared with
};
/// One kernel, or two side by side. `figures`: the folder with trace.html, trace.mjs and the modules it imports.
std::string trace_page(const std::filesystem::path& figures, const std::string& title,
                       const std::vector<TraceColumn>& columns);

/// A module of that folder and everything that it imports, as one script in dependency order. Every module becomes a
/// function whose result, its exports, is stored in modules['NAME.mjs']. Only named imports of files in the same folder
/// and exports at declarations are supported.
std::string bundled(const std::filesystem::path& module);

}  // namespace workbook::cli
