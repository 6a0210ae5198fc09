// What a release holds: the files of an assignment's folder, as text, and whether an answer is among them. Writes
// nothing, builds nothing.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/book/markers.hpp"
#include "common/grading/archive.hpp"
#include "common/grading/assignment.hpp"

namespace workbook::grading {

using Files = std::map<std::string, ArchivedFile>;  ///< path relative to the folder -> file

/// A solution file with the assignment's exercises open and all others given: markers kept, // STUB: lines dropped.
std::string released_text(const book::MarkedFile& solution, const Assignment& assignment);

/// The files of a release: the chapters up to the last open one, their public tests, what builds and runs them, a
/// README and assignment.toml. Left out: solutions/, the mutants, later chapters, the tests of the book itself, the
/// instructors' notes. ManifestError if a chapter has no solution here.
Files release_files(const book::Book& book, const Assignment& assignment);

/// The same files with the answers put back in.
Files with_answers(const book::Book& book, const Assignment& assignment, Files files);

/// The workflow for GitHub Actions: .github/workflows/workbook.yml.
std::string github_workflow(const Assignment& assignment);

/// The files of Gradescope's autograder zip: setup.sh and run_autograder at its root, the book under book/, hidden
/// tests under hidden/. `hidden`: a folder, or empty.
Files autograder_files(const book::Book& book, const Assignment& assignment, const std::filesystem::path& hidden);

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

/// The oracle computes attention, so it has lines of many an answer. It is given in every release.
bool is_oracle(const std::string& file);

}  // namespace workbook::grading
