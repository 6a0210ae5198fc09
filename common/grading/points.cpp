#include "common/grading/points.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace workbook::grading {
namespace {

using book::Chapter;
using judge::Result;
using judge::Verdict;

/// The ids of items: "chapter 2", "bar 1".
std::string chapter_item(int chapter) {
  return fmt::format("chapter {}", chapter);
}
std::string bar_item(std::size_t position) {
  return fmt::format("bar {}", position + 1);
}

/// The results of the tests of one name on all backends.
struct Named {
  bool passed = false, all_good = true;
  Result worst = Result::passed;
  void add(const Verdict& verdict) {
    passed = passed || verdict.result == Result::passed;
    all_good =
        all_good && (verdict.result == Result::passed || (verdict.result == Result::skipped && !verdict.unavailable));
    worst = worse(worst, verdict.result);
  }
  /// Only skipped is not a pass. A test that a backend could not run counts as failed even if it passed on another one,
  /// since the report of unavailability comes from the worker.
  bool good() const { return passed && all_good; }
};

/// Sets an item's result from its tests. `expected`: the public tests that must be among them.
GradedItem judged(GradedItem item, const std::vector<CountedTest>& tests, const std::vector<std::string>& expected) {
  std::map<std::pair<bool, std::string>, Named> named;  // by whether it is hidden, and name
  for (const std::string& name : expected) named[{false, name}];
  for (const auto& [verdict, of] : tests) {
    if (of != item.id) continue;
    named[{verdict.hidden, verdict.test}].add(verdict);
    item.has_hidden = item.has_hidden || verdict.hidden;
  }
  bool all = !named.empty();
  item.public_passed = true;
  for (const auto& [key, name] : named) {
    if (name.good()) continue;
    all = false;
    if (!key.first) item.public_passed = false;
    // A test without a result never ran: its program ended early.
    item.result = worse(item.result, name.worst == Result::passed ? Result::timed_out : name.worst);
  }
  item.points = all ? item.max_points : 0;
  return item;
}

const Assignment::Bar* bar_of(const Assignment& assignment, int chapter, const std::string& test) {
  const auto found = std::find_if(assignment.bars.rbegin(), assignment.bars.rend(),
                                  [&](const auto& bar) { return bar.chapter == chapter && bar.test == test; });
  return found == assignment.bars.rend() ? nullptr : &*found;
}

std::vector<std::string> without_bars(const Assignment& assignment, int chapter, std::vector<std::string> tests) {
  std::erase_if(tests, [&](const std::string& test) { return bar_of(assignment, chapter, test) != nullptr; });
  return tests;
}

GradedItem new_item(ItemKind kind, const std::string& id, const std::string& title, int chapter, double max_points) {
  return {.kind = kind, .id = id, .title = title, .chapter = chapter, .max_points = max_points};
}

/// The item of a chapter as a whole. `exercises`: the items of its exercises.
GradedItem judged_chapter(const Assignment& assignment, const Assignment::Whole& whole, const Chapter& chapter,
                          const std::vector<CountedTest>& tests, const std::vector<GradedItem>& exercises) {
  GradedItem item = judged(new_item(ItemKind::chapter, chapter_item(chapter.number),
                                    chapter.title + ", everything in it", chapter.number, whole.points),
                           tests, without_bars(assignment, chapter.number, chapter.whole_tests));
  for (const GradedItem& exercise : exercises) {
    if (exercise.chapter != chapter.number || exercise.result == Result::passed) continue;
    item.points = 0;
    item.public_passed = item.public_passed && exercise.public_passed;
    item.has_hidden = item.has_hidden || exercise.has_hidden;
    item.result = worse(item.result, exercise.result);
  }
  return item;
}

}  // namespace

std::string item_of(const Assignment& assignment, int chapter, const Verdict& verdict) {
  if (const Assignment::Bar* bar = bar_of(assignment, chapter, verdict.test))
    return bar_item(std::size_t(bar - assignment.bars.data()));
  return verdict.exercise == judge::kWhole ? chapter_item(chapter) : verdict.exercise;
}

std::vector<GradedItem> give_points(const Assignment& assignment, const book::Book& book,
                                    const std::vector<CountedTest>& tests) {
  std::vector<GradedItem> items;
  for (const Assignment::Exercise& exercise : assignment.exercises) {
    const book::Exercise& known = book.exercise(exercise.id);
    const int chapter = book.chapter(exercise.id.substr(0, exercise.id.find('.'))).number;
    items.push_back(judged(new_item(ItemKind::exercise, exercise.id, known.title, chapter, exercise.points), tests,
                           without_bars(assignment, chapter, known.tests)));
  }
  const std::vector<GradedItem> exercises = items;
  for (const Assignment::Whole& whole : assignment.chapters)
    items.push_back(judged_chapter(assignment, whole, *book.find(whole.chapter), tests, exercises));
  for (std::size_t i = 0; i < assignment.bars.size(); ++i) {
    const Assignment::Bar& bar = assignment.bars[i];
    // Hidden bars are not listed in the book. The result shows whether the test ran.
    std::vector<std::string> expected;
    if (has_test(*book.find(bar.chapter), bar.test)) expected.push_back(bar.test);
    GradedItem item = judged(new_item(ItemKind::bar, bar_item(i), bar.test, bar.chapter, bar.points), tests, expected);
    if (item.points == 0 && item.result == Result::passed) item.result = Result::timed_out;  // it never ran
    items.push_back(item);
  }
  return items;
}

void add_tested(GradedSubmission& report, const Chapter& chapter, const std::vector<Verdict>& verdicts) {
  std::vector<GradedItem> items;
  for (const book::Exercise& exercise : chapter.exercises)
    items.push_back(new_item(ItemKind::exercise, exercise.id, exercise.title, chapter.number, exercise.points));
  items.push_back(new_item(ItemKind::chapter, chapter_item(chapter.number), chapter.title, chapter.number, 0));
  for (GradedItem& item : items) {
    bool any = false;
    for (const Verdict& verdict : verdicts) {
      if (item_of(Assignment{}, chapter.number, verdict) != item.id) continue;
      any = true;
      report.tests.push_back({verdict, item.id});
      if (verdict.result != Result::skipped) item.result = worse(item.result, verdict.result);
    }
    item.public_passed = item.result == Result::passed;
    item.points = item.public_passed ? item.max_points : 0;
    if (any) report.items.push_back(std::move(item));
  }
}

}  // namespace workbook::grading
