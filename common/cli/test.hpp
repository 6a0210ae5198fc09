// The verb test, which watch calls too.
#pragma once

#include <string>
#include <vector>

#include "common/cli/session.hpp"

namespace workbook::cli {

struct TestOptions {
  std::vector<std::string> chapters;   ///< numbers or names, or exercise ids; empty: all chapters
  bool solutions = false;              ///< the book's code in place of the reader's
  std::string previous = "solutions";  ///< or "chapters"
  std::string only;                    ///< one test by name
  std::string backend;                 ///< only this one: "cpu", "sim" or "cuda"
  std::string gpu;                     ///< whose limits the simulator takes on; empty: its own
  std::string sanitizer;               ///< a tool of compute-sanitizer that watches the cuda workers; empty: none
  bool debug = false;                  ///< the worker under a debugger
  bool verbose = false;                ///< every failing test in full
  double time_limit = 10;              ///< seconds per call
  std::string junit, summary;          ///< files to write: JUnit XML; a Markdown page, added to what is there
};
int test(const Session& session, const TestOptions& options);

}  // namespace workbook::cli
