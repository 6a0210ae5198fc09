#include "common/cli/next_step.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "common/book/progress.hpp"
#include "common/cli/released.hpp"

namespace workbook::cli {

using book::Chapter, book::Progress;
using judge::ChapterRun, judge::Result, judge::Verdict;

namespace {

/// The exercises whose tests have passed in these runs of the reader's code, or could not run here.
std::set<std::string> passed_in(const std::vector<ChapterRun>& runs) {
  std::set<std::string> passed, failed;
  for (const ChapterRun& run : runs) {
    for (const Verdict& test : run.tests) {
      if (run.tree == "solutions" || test.result == Result::skipped) continue;
      (test.result == Result::passed ? passed : failed).insert(test.exercise);
    }
  }
  for (const std::string& id : failed) passed.erase(id);
  return passed;
}

}  // namespace

std::string after_passing(const Session& session, const std::vector<ChapterRun>& runs, const Chapter& chapter,
                          const std::string& exercise) {
  const auto progress = book::load_progress(session.book);
  const std::set<std::string> passed = passed_in(runs);
  const std::optional<grading::Assignment> assignment = released(session);
  const std::string solution = session.book.has_solutions(chapter)
                                   ? fmt::format("./workbook solution {} shows how the book does it",
                                                 exercise.empty() ? chapter.exercises.front().id : exercise)
                                   : "";
  // Open exercises of this chapter first, then those of later chapters, then skipped earlier ones.
  std::vector<Chapter> chapters = session.book.chapters;
  std::ranges::rotate(chapters, std::ranges::find(chapters, chapter.number, &Chapter::number));
  for (const Chapter& other : chapters) {
    for (const book::Exercise& each : other.exercises) {
      const book::ExerciseProgress& at = progress.at(each.id);
      const bool done = at.state == Progress::passing || passed.contains(each.id) ||
                        is_given(assignment, each, at.state) || is_left_open(each, at.state);
      if (done) continue;
      const std::string then =
          other.number == chapter.number
              ? fmt::format("exercise {}, {}: {}:{}", each.id, each.title, session.shown(at.file), at.line)
              : fmt::format("chapter {}, {}: read chapters/{}/README.md", other.number, other.title, other.name());
      return solution.empty() ? then : solution + "; then " + then;
    }
  }
  return (solution.empty() ? "" : solution + "; ") +
         "all exercises are solved: ./workbook run --chapters runs your stages";
}

bool is_finished(const Session& session, const Chapter& chapter, const std::string& exercise) {
  const auto progress = book::load_progress(session.book);
  return std::ranges::all_of(chapter.exercises, [&](const book::Exercise& each) {
    const Progress state = progress.at(each.id).state;
    return (!exercise.empty() && each.id != exercise) || state == Progress::passing ||
           (exercise.empty() && is_left_open(each, state));
  });
}

}  // namespace workbook::cli
