// reset: restores the TODO of an exercise, or the file that contains it. A copy of the old text is kept.
#include "common/book/stubs.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {

int reset(const Session& session, const ResetOptions& options) {
  const book::Exercise& exercise = session.book.exercise(options.exercise);
  const std::filesystem::path backup =
      options.file ? book::reset_file(session.book, exercise.id) : book::reset_exercise(session.book, exercise.id);
  if (session.json) {
    print_json({{"exercise", exercise.id},
                {"backup", backup.empty() ? nlohmann::json(nullptr) : nlohmann::json(session.shown(backup))}});
  } else {
    fmt::print("{} is a TODO again; {}\n",
               options.file ? "the file of exercise " + exercise.id : "exercise " + exercise.id,
               backup.empty() ? "the file did not exist before" : "the old text is in " + session.shown(backup));
  }
  return kDone;
}

}  // namespace workbook::cli
