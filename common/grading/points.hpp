// From verdicts to points. Decides by the verdicts' fields alone: their item, their result, whether they are hidden.
#pragma once

#include <string>
#include <vector>

#include "common/book/manifest.hpp"
#include "common/grading/assignment.hpp"
#include "common/grading/graded.hpp"

namespace workbook::grading {

/// What a test of this chapter counts for: the bar that names it, or else its exercise, or the chapter as a whole.
std::string item_of(const Assignment& assignment, int chapter, const judge::Verdict& verdict);

/// One item for everything that the assignment gives points for. An item has its points if each of its tests has
/// passed, on one backend at least and on all on which it can run; a chapter as a whole, if its exercises have theirs
/// too. The public tests that the book names must be among `tests`: one that never ran has crashed.
std::vector<GradedItem> give_points(const Assignment& assignment, const book::Book& book,
                                    const std::vector<CountedTest>& tests);

/// Adds a chapter's tests to a report where points are the book's own, and the tests are all those that there are: for
/// whoever tests their own code. What has no test there is no item.
void add_tested(GradedSubmission& report, const book::Chapter& chapter, const std::vector<judge::Verdict>& verdicts);

}  // namespace workbook::grading
