// Places in the source as a reader knows them: their own files by name and line, the book's by exercise.
#pragma once

#include <string>
#include <vector>

#include "common/judge/plan.hpp"
#include "common/simt/report.hpp"

namespace workbook::judge {

/// Names both sides of each report for the reader of a plan's tree: a file that they have by its name there, a line in
/// an exercise of the book's solution "the book's 3.8". A given line outside all exercises is named where the reader's
/// file has it; where that says something else, "the book's 03_tiled_wmma/tiled_wmma.cu:90, outside your region".
void name_places(const Workspace& workspace, const Plan& plan, std::vector<simt::Report>& reports);

/// A compiler's log, with the files of grafts called what the reader knows them by.
std::string as_the_reader_knows(std::string log, const Plan& plan);

}  // namespace workbook::judge
