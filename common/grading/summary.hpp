// A class at a glance: how each exercise went, and what went wrong most often.
#pragma once

#include <string>
#include <vector>

#include "common/grading/graded.hpp"

namespace workbook::grading {

/// Markdown: the distribution of points, per exercise how many passed and how the others ended, the likely causes and
/// results that most students share, and who could not be graded.
std::string class_summary(const std::vector<GradedSubmission>& submissions);

/// CSV: a row for each submission.
std::string class_table(const std::vector<GradedSubmission>& submissions);

/// A gnuplot program that draws the distribution of points, and of results per exercise, into `svg`.
std::string class_plot(const std::vector<GradedSubmission>& submissions, const std::string& svg);

}  // namespace workbook::grading
