// hint: one hint more of an exercise, each more explicit than the last.
#include <algorithm>

#include "common/book/progress.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {
namespace {

int hint(const Session& session, const std::string& id, bool all) {
  const book::Exercise& exercise = session.book.exercise(id);
  const int count = int(exercise.hints.size());
  const int shown = all ? count : std::min(book::hints_seen(session.book, exercise.id) + 1, count);
  if (session.json) {
    print_json({{"exercise", exercise.id},
                {"hints", std::vector<std::string>(exercise.hints.begin(), exercise.hints.begin() + shown)},
                {"of", count}});
  } else {
    fmt::print("{} {} (about {} lines)\n", exercise.id, exercise.title, exercise.lines);
    for (int i = 0; i < shown; ++i)
      fmt::print("\n{}\n", wrapped(fmt::format("hint {} of {}: {}", i + 1, count, exercise.hints[std::size_t(i)])));
    if (shown < count) fmt::print("\nfor the next one: ./workbook hint {}\n", exercise.id);
  }
  book::remember_hint(session.book, exercise.id, shown);
  return kDone;
}

}  // namespace

Runner declare_hint(Options& options) {
  struct Given {
    std::string exercise;
    bool all = false;
  };
  const auto given = std::make_shared<Given>();
  options.option("exercise", given->exercise, "An exercise, e.g. 2.2").required();
  options.flag("--all", given->all, "All its hints");
  return [given](Session& session) { return hint(session, given->exercise, given->all); };
}

}  // namespace workbook::cli
