// status, also the default verb: shows the state of every exercise. Builds nothing and runs nothing.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "common/book/progress.hpp"
#include "common/cli/released.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {
namespace {

using book::Progress;

const char* symbol(Progress state) {
  // In the order of Progress.
  static constexpr const char* names[] = {"·", "?", "✓", "✗", "!"};
  return names[std::size_t(state)];
}

const char* color(Progress state) {
  return state == Progress::passing    ? "green"
         : state == Progress::open     ? "dim"
         : state == Progress::untested ? "yellow"
                                       : "red";
}

std::string advice(const book::Chapter& chapter, const book::Exercise& exercise, const book::ExerciseProgress& at,
                   const std::string& file) {
  if (!at.damage.empty()) return at.damage;
  switch (at.state) {
    case Progress::open:
      return fmt::format("read chapters/{}/README.md, fill in exercise {} ({}:{}),\n  then ./workbook test {}",
                         chapter.name(), exercise.id, file, at.line, chapter.number);
    case Progress::untested:
      return fmt::format("./workbook test {}", chapter.number);
    case Progress::failing:
      return fmt::format("exercise {} fails: ./workbook test {}, or ./workbook hint {}", exercise.id, chapter.number,
                         exercise.id);
    case Progress::lost:
      return fmt::format(
          "the markers of exercise {} are missing from {}: restore them, or\n  ./workbook reset --file {}", exercise.id,
          file, exercise.id);
    case Progress::passing:
      break;
  }
  return "";
}

}  // namespace

int status(const Session& session, const StatusOptions& /*options*/) {
  const auto progress = book::load_progress(session.book);
  nlohmann::json chapters = nlohmann::json::array();
  const std::optional<grading::Assignment> assignment = released(session);
  std::string next;
  int done = 0, open = 0, failing = 0, untested = 0;
  std::string text;
  const book::Chapter* next_in = nullptr;
  std::size_t id_width = 0, width = 0, title_width = 0;
  for (const book::Chapter& chapter : session.book.chapters) {
    title_width = std::max(title_width, chapter.title.size());
    for (const book::Exercise& exercise : chapter.exercises) {
      id_width = std::max(id_width, exercise.id.size());
      width = std::max(width, exercise.title.size());
    }
  }
  for (const book::Chapter& chapter : session.book.chapters) {
    nlohmann::json exercises = nlohmann::json::array();
    const std::string head = session.colored(fmt::format("{:2}  {}", chapter.number, chapter.title), "bold");
    const std::size_t chapter_begins = text.size();
    bool begun = false;
    text += head + "\n";
    for (const book::Exercise& exercise : chapter.exercises) {
      const book::ExerciseProgress& at = progress.at(exercise.id);
      const std::string file = session.shown(at.file);
      const bool given = is_given(assignment, exercise, at.state);
      exercises.push_back({{"id", exercise.id},
                           {"title", exercise.title},
                           {"state", given ? "given" : name(at.state)},
                           {"file", file},
                           {"line", at.line},
                           {"points", exercise.points}});
      begun = begun || given || at.state != Progress::open;
      if (given) {
        text += fmt::format("      {:<{}}  {:<{}}  {}\n", exercise.id, id_width, exercise.title, width,
                            session.colored("given", "dim"));
        continue;
      }
      done += at.state == Progress::passing;
      const bool left_open = is_left_open(exercise, at.state);
      open += at.state == Progress::open && !left_open;
      untested += at.state == Progress::untested;
      failing += at.state == Progress::failing || at.state == Progress::lost;
      if (next.empty() && !left_open) {
        next = advice(chapter, exercise, at, file);
        if (!next.empty()) next_in = &chapter;
      }
      text += fmt::format("    {} {:<{}}  {:<{}}  {}\n", session.colored(symbol(at.state), color(at.state)),
                          exercise.id, id_width, exercise.title, width,
                          session.colored(left_open ? "open, optional" : name(at.state), color(at.state)));
    }
    // A chapter that is not begun takes one line, unless it is the next one.
    if (!begun && next_in != &chapter && !chapter.exercises.empty()) {
      text.resize(chapter_begins);
      text += fmt::format("{}{}  {} exercises, not started\n", head,
                          std::string(title_width - chapter.title.size(), ' '), chapter.exercises.size());
    }
    chapters.push_back({{"chapter", chapter.name()}, {"title", chapter.title}, {"exercises", exercises}});
  }
  if (next.empty()) next = "all exercises are solved: ./workbook run --chapters runs your own stages";
  if (session.json) {
    print_json({{"chapters", chapters},
                {"done", done},
                {"open", open},
                {"untested", untested},
                {"failing", failing},
                {"next", next}});
    return kDone;
  }
  fmt::print("The FlashAttention Workbook\n\n{}\n", text);
  fmt::print("{} chapters, {} exercises: {} done, {} to do", session.book.chapters.size(),
             done + open + failing + untested, done, open);
  if (failing > 0) fmt::print(", {} failing", failing);
  if (untested > 0) fmt::print(", {} not tested since you changed them", untested);
  fmt::print("\nnext: {}\n", next);
  return kDone;
}

}  // namespace workbook::cli
