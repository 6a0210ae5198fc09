// reset: an exercise, or the file that holds it, back to its TODO. A copy of what was there is kept.
#include "common/book/stubs.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {
namespace {

int reset(const Session& session, const std::string& id, bool file) {
  const book::Exercise& exercise = session.book.exercise(id);
  const std::filesystem::path backup =
      file ? book::reset_file(session.book, exercise.id) : book::reset_exercise(session.book, exercise.id);
  if (session.json) {
    print_json({{"exercise", exercise.id},
                {"backup", backup.empty() ? nlohmann::json(nullptr) : nlohmann::json(session.shown(backup))}});
  } else {
    fmt::print("{} is a TODO again; {}\n", file ? "the file of exercise " + id : "exercise " + id,
               backup.empty() ? "there was no file before" : "what was there is in " + session.shown(backup));
  }
  return kDone;
}

}  // namespace

Runner declare_reset(Options& options) {
  struct Given {
    std::string exercise;
    bool file = false;
  };
  const auto given = std::make_shared<Given>();
  options.option("exercise", given->exercise, "An exercise, e.g. 2.2").required();
  options.flag("--file", given->file, "The whole file that holds the exercise");
  return [given](Session& session) { return reset(session, given->exercise, given->file); };
}

}  // namespace workbook::cli
