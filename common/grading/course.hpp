// What all submissions of a class are graded with: the assignment, its chapters as they were handed out, the hidden
// tests, and on what they run. Knows no submission.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/grading/assignment.hpp"
#include "common/judge/workspace.hpp"

namespace workbook::grading {

struct CourseOptions {
  std::filesystem::path assignment;  ///< assignment.toml
  std::filesystem::path hidden;      ///< folder with hidden tests: NN_name/test_*.cpp; empty: none
  bool on_gpu = false;               ///< on a GPU too
  bool unsafe = false;               ///< without isolation
  double time_limit = 10;            ///< seconds a call
  double total_time = 0;             ///< seconds a chapter's tests; 0: by how long the book's solution takes
  double build_time = 0;             ///< seconds of processor time for compiling one file; 0: by the book's solution
};

struct Course {
  const judge::Workspace& workspace;
  CourseOptions options;
  Assignment assignment;
  std::vector<book::Chapter> chapters;                       ///< the open ones, with the assignment's exercises alone
  std::map<std::string, std::string> pristine;               ///< "chapters/02_…/x.cpp" -> as it was handed out
  std::map<int, std::vector<Backend>> backends;              ///< by chapter
  std::map<int, std::filesystem::path> hidden_programs;      ///< by chapter
  std::map<int, std::vector<std::filesystem::path>> hidden;  ///< the hidden tests' files, by chapter
  std::vector<std::string> verified_on;                      ///< "the CPU (GNU 12.2.0)", …
};

/// Reads the assignment and what it needs of the book. ManifestError and InputError for an assignment that cannot be
/// graded with this book; EnvironmentError for one that cannot be graded on this machine.
Course load_course(const judge::Workspace& workspace, const CourseOptions& options);

/// Builds what grading needs: the book's test programs and servers, the isolation, the hidden tests.
void build_course(const Course& course);

/// A hash of everything that a result depends on but the submission: the book, the assignment, the hidden tests, the
/// options.
std::string course_key(const Course& course);

/// Files that no submission may read: the solutions, the hidden tests and their programs.
std::vector<std::filesystem::path> protected_files(const Course& course);

}  // namespace workbook::grading
