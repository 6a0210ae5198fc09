// Whether the answer to an open exercise stands in a file of a release.
#pragma once

#include <string>
#include <vector>

#include "common/grading/release.hpp"

namespace workbook::grading {

/// A line of an open region that stands in a released file as well.
struct AnswerLine {
  std::string exercise;  ///< whose answer it is a line of
  std::string text;
  std::string file;  ///< in the release
  int line = 0;
};
struct AnswerSearch {
  std::vector<AnswerLine> given;   ///< in given code: allowed, and listed
  std::vector<AnswerLine> leaked;  ///< elsewhere, or a run of lines that is an answer: the release must not be written
};
/// Looks for the lines of the open regions in every file. A line counts if it has 12 characters or more without its
/// indentation. Leaked is: a line in a file that is no code, unless given code has it too; four lines in a row, in the
/// answer's order, in code that is not the oracle's and not of a chapter before the exercise's own.
AnswerSearch find_answers(const book::Book& book, const Assignment& assignment, const Files& files);

/// The oracle and the known mistakes compute attention, so they have lines of many an answer. They are given in every
/// release.
bool is_oracle(const std::string& file);

}  // namespace workbook::grading
