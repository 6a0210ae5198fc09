// hint: shows the next hint of an exercise; each is more explicit than the one before.
#include <algorithm>

#include "common/book/progress.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {

int hint(const Session& session, const HintOptions& options) {
  const book::Exercise& exercise = session.book.exercise(options.exercise);
  const int count = int(exercise.hints.size());
  const int shown = options.all ? count : std::min(book::hints_seen(session.book, exercise.id) + 1, count);
  if (session.json) {
    print_json({{"exercise", exercise.id},
                {"hints", std::vector<std::string>(exercise.hints.begin(), exercise.hints.begin() + shown)},
                {"of", count}});
  } else {
    fmt::print("{} {} (about {} lines)\n", exercise.id, exercise.title, exercise.lines);
    for (int i = 0; i < shown; ++i)
      fmt::print("\n{}\n", wrapped(fmt::format("hint {} of {}: {}", i + 1, count, exercise.hints[std::size_t(i)])));
    if (shown < count) fmt::print("\nnext hint: ./workbook hint {}\n", exercise.id);
  }
  book::remember_hint(session.book, exercise.id, shown);
  return kDone;
}

}  // namespace workbook::cli
