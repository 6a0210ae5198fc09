// Shared by the tests of trace: a counting build, and a copy of the book with an added chapter.
#pragma once

#include <string>

#include "tests/cli/workbook_copy.hpp"

namespace workbook::test {

/// Skips the test if this build has no counting simulator.
void require_counts();

inline const std::string ch03 = "03_tiled_wmma", ch06 = "06_backward";

/// A copy of the book with an added chapter: its lesson, solution, tests, and the stubs generated from the solution.
WorkbookCopy book_with(const std::string& chapter);

/// The facts in a page of trace --html.
nlohmann::json page_facts(const std::string& html);

}  // namespace workbook::test
