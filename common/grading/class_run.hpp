// Grading a class: its submissions one after the other or several at a time, a record of each, so that a run that was
// ended goes on where it was, and the class's tables.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/grading/course.hpp"
#include "common/grading/graded.hpp"

namespace workbook::grading {

struct ClassOptions : CourseOptions {
  std::vector<std::string> submissions;  ///< folders, archives, files
  std::filesystem::path out;             ///< a folder for each submission's reports, and the class's tables
  std::filesystem::path results;         ///< Gradescope's results.json in place of that, for one submission
  std::size_t part = 1, parts = 1;       ///< grades the second of eight parts of the submissions
  std::size_t jobs = 1;                  ///< submissions at a time
  bool again = false;                    ///< also what has a record
};

/// How far a run has come.
struct Graded {
  const GradedSubmission& submission;
  bool known = false;             ///< from the record of an earlier run
  std::size_t at = 0, count = 0;  ///< "the third of ten"
};

struct GradedClass {
  std::vector<GradedSubmission> submissions;  ///< of this part
  std::size_t in_tables = 0;                  ///< how many the class's tables have, with earlier runs' …
  std::size_t all = 0;                        ///< … of so many
  nlohmann::json isolation;                   ///< how code was kept from the machine
  std::vector<std::string> verified_on;       ///< "the CPU (GNU 12.2.0)", …
  bool trouble = false;                       ///< some could not be graded, or their reports not be written
};

/// Builds all that grading needs, and grades nothing.
void prepare_grading(const judge::Workspace& workspace, const CourseOptions& options);

/// Grades a class. `on_graded` is called after each submission, by one thread at a time. What goes wrong with one of
/// them is its `problem`; EnvironmentError where nothing can be graded here.
GradedClass grade_class(const judge::Workspace& workspace, const ClassOptions& options,
                        const std::function<void(const Graded&)>& on_graded);

}  // namespace workbook::grading
