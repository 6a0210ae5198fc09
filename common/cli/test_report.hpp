// The results of `test` as JUnit XML and as Markdown, in the form of a graded submission.
#pragma once

#include <filesystem>
#include <vector>

#include "common/grading/report.hpp"
#include "common/judge/run.hpp"

namespace workbook::cli {

/// A report without tests. Points are the book's.
grading::GradedSubmission empty_report();

void add_to_report(grading::GradedSubmission& report, const book::Chapter& chapter,
                   const std::vector<judge::ChapterRun>& runs);

/// Writes JUnit XML to `junit` and appends Markdown to `summary`, unless the path is empty.
void write_reports(const grading::GradedSubmission& report, const std::filesystem::path& junit,
                   const std::filesystem::path& summary);

}  // namespace workbook::cli
