// Source locations as a reader knows them: their own files by name and line, the book's by exercise.
#pragma once

#include <string>
#include <vector>

#include "common/judge/plan.hpp"
#include "common/simt/report.hpp"

namespace workbook::judge {

/// Names both locations of each report for the reader of a plan's tree. A file of the tree appears under its name, a
/// line in an exercise of the book's solution as "the book's 3.8". A given line outside all exercises gets its location
/// in the reader's file. If the text differs there, it appears as "the book's 03_tiled_wmma/tiled_wmma.cu:90, outside
/// your region".
void name_locations(const Workspace& workspace, const Plan& plan, std::vector<simt::Report>& reports);

/// A compiler's log in which the files of grafts have the names that the reader knows.
std::string as_the_reader_knows(std::string log, const Plan& plan);

}  // namespace workbook::judge
