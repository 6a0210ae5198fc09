// What the tests of trace share: a build that counts, and a copy of the book with a chapter put in.
#pragma once

#include <string>

#include "tests/cli/workbook_copy.hpp"

namespace workbook::test {

/// Skips the test where this build has no simulator that counts.
void require_counts();

inline const std::string ch03 = "03_tiled_wmma", ch06 = "06_backward";

/// The copy of the book, with a chapter put in: its lesson, solution, tests, and stubs made from the solution.
WorkbookCopy book_with(const std::string& chapter);

/// The facts that a page of trace --html carries.
nlohmann::json page_facts(const std::string& html);

}  // namespace workbook::test
