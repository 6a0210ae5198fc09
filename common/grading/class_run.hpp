// Grades a class: one or several submissions at a time. Each gets a record, so that an interrupted run can continue.
// Writes the class's tables.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/grading/course.hpp"
#include "common/grading/graded.hpp"

namespace workbook::grading {

struct ClassOptions : CourseOptions {
  std::vector<std::string> submissions;  ///< folders, archives, files
  std::filesystem::path out;             ///< the folder for each submission's reports and the class's tables
  std::filesystem::path results;         ///< write only Gradescope's results.json, for one submission
  std::size_t part = 1, parts = 1;       ///< part = 2, parts = 8: grades the second eighth of the submissions
  std::size_t jobs = 1;                  ///< submissions at a time
  bool again = false;                    ///< grade submissions that have a record too
};

/// The progress of a run.
struct Graded {
  const GradedSubmission& submission;
  bool known = false;             ///< taken from the record of an earlier run
  std::size_t at = 0, count = 0;  ///< "the third of ten"
};

struct GradedClass {
  std::vector<GradedSubmission> submissions;  ///< of this part
  std::size_t in_tables = 0;                  ///< the number of submissions in the tables, earlier runs included
  std::size_t all = 0;                        ///< the number of all submissions
  nlohmann::json isolation;                   ///< how the code was isolated
  std::vector<std::string> verified_on;       ///< "the CPU (GNU 12.2.0)", …
  bool trouble = false;                       ///< some submissions could not be graded, or their reports not written
};

/// Grades a class. Calls `on_graded` after each submission, from one thread at a time. An error with one submission
/// becomes its `problem`. EnvironmentError if grading is not possible on this machine.
GradedClass grade_class(const judge::Workspace& workspace, const ClassOptions& options,
                        const std::function<void(const Graded&)>& on_graded);

}  // namespace workbook::grading
