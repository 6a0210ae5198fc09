// Summaries of a class: the results of each exercise and the most frequent mistakes.
#pragma once

#include <string>
#include <vector>

#include "common/grading/graded.hpp"

namespace workbook::grading {

/// Markdown: the distribution of points, the results per exercise, the most frequent causes, and the submissions that
/// could not be graded.
std::string class_summary(const std::vector<GradedSubmission>& submissions);

/// CSV: one row per submission.
std::string class_table(const std::vector<GradedSubmission>& submissions);

/// A gnuplot program that draws the distribution of points, and of results per exercise, into `svg`.
std::string class_plot(const std::vector<GradedSubmission>& submissions, const std::string& svg);

}  // namespace workbook::grading
