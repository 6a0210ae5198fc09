// Grading one submission: its files over a pristine tree, built and run in isolation, its verdicts collected and given
// their points.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "common/grading/course.hpp"
#include "common/grading/graded.hpp"
#include "common/grading/isolation.hpp"
#include "common/grading/submission.hpp"
#include "common/judge/call_graph.hpp"

namespace workbook::grading {

/// What the submissions of a class share while they are graded.
struct Shared {
  Workshop& workshop;
  std::map<int, double> total_time = {};  ///< seconds that a chapter's tests may take, public and hidden together
  std::set<std::string> cannot_run = {};  ///< tests that the backend has no room for, the book's solution neither
  std::mutex calls_mutex = {}, untouched_mutex = {};  ///< of what stands below, each of its own
  std::map<int, judge::CallGraph> calls = {};         ///< of each chapter's solution, where it was asked for
  /// Tests and notes of chapters that nobody has touched: found out once, however many hand them in so.
  std::map<int, GradedSubmission> untouched = {};
};

/// Grades what was handed in, in a slot of the workshop. Several slots may be in use at the same time. Who handed it
/// in, and what all submissions have in common, is left to the caller.
GradedSubmission grade_one(const Course& course, Shared& shared, unsigned slot, const HandedIn& handed_in);

/// Compiles the book's own solutions as submissions are, for the names that they have. EnvironmentError if the compiler
/// is none that says who calls whom.
void learn_solutions(const Course& course, Shared& shared);

/// The book's own solution has to pass as submissions will run before anybody's is graded: a GPU's driver may refuse to
/// work for another user or in the filter, a container may forbid what a worker needs. EnvironmentError with what does
/// not. A chapter's tests may take as long as the options say, or else in proportion to what the solution's take on
/// this machine, so that what is slow on purpose costs a class little of its time.
void prove_solutions(const Course& course, Shared& shared);

}  // namespace workbook::grading
