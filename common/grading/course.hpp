// The common data for grading a class: the assignment, its chapters as they were released, the hidden tests, and the
// backends. Independent of any submission.
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
  bool on_gpu = false;               ///< grade on a GPU too
  bool unsafe = false;               ///< grade without isolation
  double time_limit = 10;            ///< seconds per call
  double total_time = 0;             ///< seconds for a chapter's tests; 0: proportional to the book's solution
  double build_time = 0;             ///< CPU seconds for compiling one file; 0: proportional to the book's solution
};

/// The hidden tests of a chapter.
struct HiddenTests {
  std::vector<std::filesystem::path> files;
  std::filesystem::path program;
};

struct Course {
  const judge::Workspace& workspace;
  CourseOptions options;
  Assignment assignment;
  std::vector<book::Chapter> chapters = {};           ///< the open chapters, with only the assignment's exercises
  std::map<std::string, std::string> pristine = {};   ///< "chapters/02_…/x.cpp" -> the released text
  std::map<int, std::vector<Backend>> backends = {};  ///< by chapter
  std::map<int, HiddenTests> hidden = {};             ///< by chapter
  std::vector<std::string> verified_on = {};          ///< "the CPU (GNU 12.2.0)", …
};

/// Reads the assignment and the required parts of the book. ManifestError or InputError if this book cannot grade the
/// assignment; EnvironmentError if this machine cannot.
Course load_course(const judge::Workspace& workspace, const CourseOptions& options);

/// Builds what grading needs: the book's test programs and servers, the isolation, the hidden tests.
void build_course(const Course& course);

/// A hash of everything except the submission on which a result depends: the book, the assignment, the hidden tests,
/// the options.
std::string course_key(const Course& course);

/// Files that no submission may read: the solutions, the hidden tests and their programs.
std::vector<std::filesystem::path> protected_files(const Course& course);

}  // namespace workbook::grading
