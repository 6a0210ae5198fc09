// solution: shows the book's answer next to the reader's, once theirs has passed: both texts, the counters that differ,
// and the reasons for the book's version.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/progress.hpp"
#include "common/cli/verbs.hpp"
#include "common/judge/counted.hpp"

namespace workbook::cli {
namespace {

using book::Progress;
using Lines = std::vector<std::string>;

/// A region in one of the two trees.
struct Answer {
  std::string file;
  int first = 0;  ///< line number of the region's first line
  Lines lines;
};

Answer answer_in(const Session& session, const std::filesystem::path& folder, const book::Chapter& chapter,
                 const std::string& id) {
  for (const std::string& name : chapter.files) {
    const std::filesystem::path path = folder / name;
    if (!std::filesystem::exists(path)) continue;
    const book::MarkedFile file = book::parse_reader(session.shown(path), book::read_file(path));
    if (const book::Region* region = file.find(id)) return {file.name, region->begin_line + 1, region->body};
  }
  return {};
}

/// Why the answer is not shown yet; empty if the exercise has passed.
std::string not_yet(const std::string& id, const book::ExerciseProgress& at) {
  switch (at.state) {
    case Progress::passing:
      return "";
    case Progress::open:
      return fmt::format("exercise {} is still open: ./workbook hint {} helps", id, id);
    case Progress::untested:
      return fmt::format("exercise {} has not been tested since you changed it: ./workbook test {}", id, id);
    case Progress::failing:
      return fmt::format("exercise {} does not pass yet: ./workbook test {} says why, ./workbook hint {} helps", id, id,
                         id);
    case Progress::lost:
      if (!at.damage.empty()) return at.damage;
      return fmt::format("the markers of exercise {} are missing from your file: ./workbook test {} says which", id,
                         id);
  }
  return "";
}

/// Asks for confirmation on a terminal; elsewhere --anyway is the confirmation.
bool means_it(const std::string& id) {
  if (::isatty(0) == 0 || ::isatty(2) == 0) return true;
  print_error("You can find the answer to {} yourself only once. Show the book's answer anyway? [y/N] ", id);
  const int answer = std::getchar();
  return answer == 'y' || answer == 'Y';
}

std::size_t width_of(const Lines& lines) {
  std::size_t width = 0;
  for (const std::string& line : lines) width = std::max(width, line.size());
  return width;
}

std::string title_of(const char* whose, const Answer& answer) {
  return fmt::format("{}, {}:{}", whose, answer.file, answer.first);
}

/// Side by side if the terminal is wide enough, else one below the other.
void print_answers(const Session& session, const Answer& yours, const Answer& book) {
  const std::string left = title_of("yours", yours), right = title_of("the book's", book);
  const std::size_t width = std::max(width_of(yours.lines), left.size());
  if (width + 3 + std::max(width_of(book.lines), right.size()) <= std::size_t(line_width())) {
    fmt::print("{}   {}\n", session.colored(fmt::format("{:<{}}", left, width), "bold"),
               session.colored(right, "bold"));
    for (std::size_t i = 0; i < std::max(yours.lines.size(), book.lines.size()); ++i) {
      fmt::print("{:<{}} | {}\n", i < yours.lines.size() ? yours.lines[i] : "", width,
                 i < book.lines.size() ? book.lines[i] : "");
    }
    return;
  }
  for (const auto& [title, answer] : {std::pair{left, &yours}, {right, &book}}) {
    fmt::print("{}\n", session.colored(title, "bold"));
    for (const std::string& line : answer->lines) fmt::print("{}\n", line);
    fmt::print("\n");
  }
}

void print_counted(const judge::Counted& counted) {
  if (counted.problem.empty()) return;
  if (counted.differences.empty()) {
    fmt::print("\nCounted on {}: no counter differs.\n", counted.problem);
    return;
  }
  fmt::print("\nCounted on {}:\n  {:<46} {:>12} {:>12}\n", counted.problem, "", "yours", "the book's");
  for (const judge::CountedDifference& each : counted.differences)
    fmt::print("  {:<46} {:>12.0f} {:>12.0f}\n", each.meaning, each.yours, each.book);
}

nlohmann::json answer_json(const Answer& answer) {
  return {{"file", answer.file}, {"line", answer.first}, {"text", book::join_lines(answer.lines)}};
}

}  // namespace

int solution(const Session& session, const SolutionOptions& options) {
  const book::Exercise& exercise = session.book.exercise(options.exercise);
  const std::string& id = exercise.id;
  const book::Chapter& chapter = session.book.chapter(id.substr(0, id.find('.')));
  if (!session.book.has_solutions(chapter))
    judge::fail_environment("solution {}: this copy of the book does not include its solutions", id);
  const book::ExerciseProgress at = book::load_progress(session.book).at(id);
  const Progress state = at.state;
  if (const std::string missing = not_yet(id, at); !missing.empty()) {
    if (!options.anyway) {
      print_error("{}; --anyway shows the book's answer now\n", missing);
      return kTestFailed;
    }
    if (!means_it(id)) return kTestFailed;
  }
  const Answer yours = answer_in(session, judge::readers_tree(session, chapter).folder, chapter, id);
  const Answer book = answer_in(session, judge::solutions_tree(session, chapter).folder, chapter, id);
  session.progress("counting");
  const judge::Counted counted =
      state == Progress::passing ? judge::count_beside_solution(session, chapter, id) : judge::Counted();
  session.progress("");
  if (session.json) {
    nlohmann::json differences = nlohmann::json::array();
    for (const judge::CountedDifference& each : counted.differences)
      differences.push_back({{"name", each.name}, {"yours", each.yours}, {"book", each.book}});
    print_json({{"exercise", exercise.id},
                {"title", exercise.title},
                {"state", name(state)},
                {"yours", answer_json(yours)},
                {"book", answer_json(book)},
                {"counted_on", counted.problem.empty() ? nlohmann::json(nullptr) : nlohmann::json(counted.problem)},
                {"differences", differences},
                {"why", exercise.why.empty() ? nlohmann::json(nullptr) : nlohmann::json(exercise.why)}});
    return kDone;
  }
  fmt::print("{}\n\n", session.colored(fmt::format("{} {}", exercise.id, exercise.title), "bold"));
  print_answers(session, yours, book);
  print_counted(counted);
  if (!exercise.why.empty()) fmt::print("\nWhy: {}\n", exercise.why);
  return kDone;
}

}  // namespace workbook::cli
