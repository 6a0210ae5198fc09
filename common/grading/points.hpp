// Computes points from verdicts. Uses only the fields of the verdicts: their item, their result, and whether they are
// hidden.
#pragma once

#include <string>
#include <vector>

#include "common/book/manifest.hpp"
#include "common/grading/assignment.hpp"
#include "common/grading/graded.hpp"

namespace workbook::grading {

/// The item to which a test of this chapter belongs: the bar that names it, otherwise its exercise or the chapter as a
/// whole.
std::string item_of(const Assignment& assignment, int chapter, const judge::Verdict& verdict);

/// One item for each entry of the assignment. An item earns its points if each of its tests has passed on at least one
/// backend and on all on which it can run. A chapter as a whole also requires that all its exercises pass. The public
/// tests that the book names must be among `tests`: a test that never ran has timed out, since those before it took all
/// of the time.
std::vector<GradedItem> give_points(const Assignment& assignment, const book::Book& book,
                                    const std::vector<CountedTest>& tests);

/// Adds a chapter's tests to a report of a reader's own code, with the book's points. Exercises without tests get no
/// item.
void add_tested(GradedSubmission& report, const book::Chapter& chapter, const std::vector<judge::Verdict>& verdicts);

}  // namespace workbook::grading
