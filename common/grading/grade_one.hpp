// Grading one submission: its files over a pristine tree, built and run in isolation, its verdicts collected and given
// their points.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "common/grading/course.hpp"
#include "common/grading/graded.hpp"
#include "common/grading/isolation.hpp"
#include "common/grading/submission.hpp"

namespace workbook::grading {

/// What the tests say of chapters that nobody has touched: found out once, however many hand them in so.
class Untouched {
 public:
  /// Adds the chapter's tests and notes; `find_out` does so to an empty submission, once for each chapter.
  void add(int chapter, GradedSubmission& graded, const std::function<void(GradedSubmission&)>& find_out);

 private:
  std::mutex mutex_;
  std::map<int, GradedSubmission> known_;  ///< by chapter
};

/// Grades what was handed in, in a slot of the workshop. Several slots may be in use at the same time. Who handed it
/// in, and what all submissions have in common, is left to the caller.
GradedSubmission grade_one(const Course& course, Workshop& workshop, unsigned slot, Untouched& untouched,
                           const HandedIn& handed_in);

/// A GPU's driver may refuse to work for another user or in the filter: the book's own solution has to pass there
/// before anybody's is graded. EnvironmentError with what does not.
void prove_gpu(const Course& course, Workshop& workshop);

}  // namespace workbook::grading
