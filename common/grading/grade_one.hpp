// Grades one submission: puts its files over a pristine tree, builds and runs them in isolation, collects the verdicts
// and awards points.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "common/grading/course.hpp"
#include "common/grading/graded.hpp"
#include "common/grading/isolation.hpp"
#include "common/grading/submission.hpp"

namespace workbook::grading {

/// By exercise: the others that are stubs in its graft (judge::PlanRequest).
using Stubs = std::map<std::string, std::set<std::string>>;

/// Data shared by the submissions of a class during grading.
struct Shared {
  const Course& course;
  Workshop& workshop;
  /// By chapter: the seconds for the tests of each exercise, and of the chapter as a whole.
  std::map<int, std::map<std::string, double>> seconds = {};
  std::set<std::string> cannot_run = {};  ///< tests that cannot run on the backend even with the book's solution
  std::mutex stubs_mutex = {}, untouched_mutex = {};    ///< for the two maps below; the second is locked first
  std::map<std::pair<int, Backend>, Stubs> stubs = {};  ///< by chapter and backend, computed on demand
  /// Tests and notes of unchanged chapters, determined once for all submissions.
  std::map<int, GradedSubmission> untouched = {};
};

/// Grades a submission in a slot of the workshop. Several slots may be used concurrently. The caller fills in the
/// student and the data of the course.
GradedSubmission grade_one(Shared& shared, unsigned slot, const HandedIn& handed_in);

/// Compiles the book's own solutions like submissions, to collect the names that they use. EnvironmentError unless the
/// compiler is g++.
void learn_solutions(Shared& shared);

/// Checks that the book's own solution passes under the conditions of grading, before any submission is graded. A GPU
/// driver may fail for another user or under the filter, and a container may forbid what a worker needs.
/// EnvironmentError names the failure. Also sets the time limit of each exercise's tests: its share of that of the
/// options, or a multiple of the solution's time on this machine. So a deliberately slow submission costs little time.
void prove_solutions(Shared& shared);

}  // namespace workbook::grading
