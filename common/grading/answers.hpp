// Checks whether a file of a release contains the answer to an open exercise.
#pragma once

#include <string>
#include <vector>

#include "common/grading/release.hpp"

namespace workbook::grading {

/// A line of an open region that also occurs in a released file.
struct AnswerLine {
  std::string exercise;  ///< the exercise whose answer contains the line
  std::string text;
  std::string file;  ///< in the release
  int line = 0;
};
struct AnswerSearch {
  std::vector<AnswerLine> given;   ///< in given code: allowed, and listed
  std::vector<AnswerLine> leaked;  ///< elsewhere, or a run of lines: the release must not be written
};
/// Searches every file for lines of the open regions with at least 12 characters, not counting indentation. A leak is a
/// line in a file other than code, unless given code contains it too. A leak is also a run of four lines in the
/// answer's order in code, except in the oracle and in chapters before the exercise's own.
AnswerSearch find_answers(const book::Book& book, const Assignment& assignment, const Files& files);

/// The oracle computes attention, so it shares lines with many answers. Every release contains it.
bool is_oracle(const std::string& file);

}  // namespace workbook::grading
