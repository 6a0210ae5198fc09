// reset: an exercise, or the file that holds it, back to its TODO. A copy of what was there is kept.
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
               backup.empty() ? "there was no file before" : "what was there is in " + session.shown(backup));
  }
  return kDone;
}

}  // namespace workbook::cli
