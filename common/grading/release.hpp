// The contents of a release: the files of an assignment's folder, as text. Writes and builds nothing.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/book/markers.hpp"
#include "common/grading/archive.hpp"
#include "common/grading/assignment.hpp"

namespace workbook::grading {

using Files = std::map<std::string, ArchivedFile>;  ///< path relative to the folder -> file

/// The solution's file without "solutions/": "02_online_softmax/online_softmax.cpp".
std::string in_its_tree(const book::MarkedFile& solution);

/// The chapters that an assignment needs: all up to the last open one.
std::vector<const book::Chapter*> released_chapters(const book::Book& book, const Assignment& assignment);

/// A solution file with the assignment's exercises open and all others given: with markers, without // STUB: lines.
std::string released_text(const book::MarkedFile& solution, const Assignment& assignment);

/// The files of a release: the chapters up to the last open one, their public tests, the code that builds and runs
/// them, a README and assignment.toml. Excluded: solutions/, the mutants, later chapters, the tests of the book itself,
/// the instructors' notes. ManifestError if a chapter has no solution here.
Files release_files(const book::Book& book, const Assignment& assignment);

/// The same files with the answers restored.
Files with_answers(const book::Book& book, const Assignment& assignment, Files files);

/// The workflow for GitHub Actions: .github/workflows/workbook.yml.
std::string github_workflow(const book::Book& book, const Assignment& assignment);

/// The files of Gradescope's autograder zip: setup.sh and run_autograder at its root, the book under book/, hidden
/// tests under hidden/. `hidden`: a folder, or empty.
Files autograder_files(const book::Book& book, const Assignment& assignment, const std::filesystem::path& hidden);

}  // namespace workbook::grading
