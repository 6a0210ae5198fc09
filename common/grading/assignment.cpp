#include "common/grading/assignment.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/toml_table.hpp"

namespace workbook::grading {
namespace fs = std::filesystem;

using book::Book;
using book::Chapter;
using book::ManifestError;

namespace {

const Chapter& chapter_of(const Book& book, const std::string& exercise) {
  return book.chapter(exercise.substr(0, exercise.find('.')));
}

/// Whether a chapter's file contains the region of an open exercise. Reads the solution or, without one, the reader's
/// file.
bool holds_open(const Assignment& assignment, const Book& book, const Chapter& chapter, const std::string& file) {
  const fs::path solution = book.solution(chapter, file), reader = book.reader(chapter, file);
  const fs::path& path = fs::exists(solution) ? solution : reader;
  return fs::exists(path) &&
         std::ranges::any_of(book::parse_reader(file, book::read_file(path)).regions,
                             [&](const book::Region& region) { return assignment.is_open(region.id); });
}

/// Sorts the exercises in the book's order, adds one entry per chapter, and lists the files to edit.
void settle(Assignment& assignment, const Book& book) {
  std::vector<Assignment::Exercise> ordered;
  std::vector<Assignment::Whole> wholes;
  for (const Chapter& chapter : book.chapters) {
    const std::size_t before = ordered.size();
    for (const book::Exercise& exercise : chapter.exercises) {
      const auto found = std::ranges::find(assignment.exercises, exercise.id, &Assignment::Exercise::id);
      if (found != assignment.exercises.end()) ordered.push_back(*found);
    }
    if (ordered.size() == before) continue;
    const auto given = std::ranges::find(assignment.chapters, chapter.number, &Assignment::Whole::chapter);
    wholes.push_back({chapter.number, given == assignment.chapters.end() ? kWholePoints : given->points});
    for (const std::string& file : chapter.files)
      if (holds_open(assignment, book, chapter, file))
        assignment.files.push_back((fs::path("chapters") / chapter.name() / file).generic_string());
  }
  assignment.exercises = std::move(ordered);
  assignment.chapters = std::move(wholes);
}

/// A TOML string.
std::string quoted(const std::string& text) {
  std::ostringstream stream;
  stream << toml::toml_formatter(toml::value(text), toml::format_flags::none);
  return stream.str();
}

/// Rejects a bar that no submission can pass or that is given twice. (check_bars() in course.cpp checks that its test
/// exists, since it may be hidden.)
void check_bar(const Assignment& assignment, const Book& book, const Assignment::Bar& bar, book::TomlTable& entry) {
  for (const Assignment::Bar& other : assignment.bars)
    if (other.chapter == bar.chapter && other.test == bar.test) entry.fail_at("test", "this bar is given twice");
  if (has_test(*book.find(bar.chapter), bar.test)) {
    for (const book::Exercise& exercise : book.find(bar.chapter)->exercises)
      if (std::ranges::count(exercise.tests, bar.test) > 0 && !assignment.is_open(exercise.id))
        entry.fail_at("test", fmt::format("this test belongs to {}, which is not in the assignment", exercise.id));
    return;
  }
  for (const Chapter& chapter : book.chapters)
    if (has_test(chapter, bar.test))
      entry.fail_at("test", fmt::format("\"{}\" is a test of chapter {}", bar.test, chapter.number));
}

}  // namespace

bool has_test(const Chapter& chapter, const std::string& name) {
  const auto in = [&](const std::vector<std::string>& tests) { return std::ranges::count(tests, name) > 0; };
  return in(chapter.whole_tests) ||
         std::ranges::any_of(chapter.exercises, [&](const book::Exercise& exercise) { return in(exercise.tests); });
}

int Assignment::points() const {
  int sum = 0;
  for (const Exercise& exercise : exercises) sum += exercise.points;
  for (const Whole& whole : chapters) sum += whole.points;
  for (const Bar& bar : bars) sum += bar.points;
  return sum;
}

bool Assignment::is_open(std::string_view exercise) const {
  return std::ranges::count(exercises, exercise, &Exercise::id) > 0;
}

std::vector<int> Assignment::open_chapters() const {
  std::vector<int> numbers;
  for (const Whole& whole : chapters) numbers.push_back(whole.chapter);
  return numbers;
}

Assignment make_assignment(const Book& book, const std::vector<std::string>& exercises,
                           const std::vector<std::string>& chapters) {
  Assignment assignment;
  std::set<std::string> seen;
  const auto add = [&](const book::Exercise& exercise) {
    if (seen.insert(exercise.id).second) assignment.exercises.push_back({exercise.id, exercise.points});
  };
  for (const std::string& id : exercises) add(book.exercise(id));
  for (const std::string& which : chapters)
    for (const book::Exercise& exercise : book.chapter(which).exercises) add(exercise);
  settle(assignment, book);
  assignment.title = assignment.exercises.size() == 1 ? "Exercise " : "Exercises ";
  for (const Assignment::Exercise& exercise : assignment.exercises)
    assignment.title += (&exercise == &assignment.exercises.front() ? "" : ", ") + exercise.id;
  return assignment;
}

Assignment load_assignment(const fs::path& given, const Book& book) {
  const fs::path path = fs::is_directory(given) ? given / "assignment.toml" : given;
  if (!fs::is_regular_file(path))
    throw ManifestError(
        fmt::format("{}: no such assignment; allowed: --assignment FILE or FOLDER, as written by `./workbook release`",
                    path.string()));
  const std::string file = path.filename().string();
  const toml::table parsed = book::parse_toml(book::read_file(path), file);
  book::TomlTable table(parsed, file, "assignment");
  Assignment assignment;
  assignment.title = table.text("title");
  if (table.has("due")) assignment.due = table.text("due");
  if (table.has("hints")) assignment.hints = table.flag("hints");
  if (table.has("leaderboard")) assignment.leaderboard = table.flag("leaderboard");
  if (table.has("hidden_results"))
    assignment.hidden_results =
        table.choice("hidden_results", {"hidden", "after_due_date", "after_published", "visible"});
  for (book::TomlTable& entry : table.tables("exercise")) {
    Assignment::Exercise exercise;
    exercise.id = entry.text("id");
    const book::Exercise* known = nullptr;
    try {
      known = &book.exercise(exercise.id);
    } catch (const ManifestError& error) {
      entry.fail_at("id", error.what());
    }
    if (assignment.is_open(exercise.id)) entry.fail_at("id", fmt::format("exercise {} is given twice", exercise.id));
    exercise.points = entry.has("points") ? entry.number("points", 0) : known->points;
    entry.reject_unknown();
    assignment.exercises.push_back(std::move(exercise));
  }
  if (assignment.exercises.empty()) table.fail(1, "the assignment has no [[exercise]]: nothing would be open");
  const auto check_open = [&](book::TomlTable& entry, const char* key, int number) {
    if (std::ranges::none_of(assignment.exercises,
                             [&](const auto& e) { return chapter_of(book, e.id).number == number; }))
      entry.fail_at(key, fmt::format("chapter {} has no exercise in this assignment", number));
  };
  for (book::TomlTable& entry : table.tables("chapter")) {
    const Assignment::Whole whole{entry.number("number", 1), entry.number("points", 0)};
    check_open(entry, "number", whole.chapter);
    if (std::ranges::count(assignment.chapters, whole.chapter, &Assignment::Whole::chapter) > 0)
      entry.fail_at("number", fmt::format("chapter {} is given twice", whole.chapter));
    entry.reject_unknown();
    assignment.chapters.push_back(whole);
  }
  for (book::TomlTable& entry : table.tables("bar")) {
    const Assignment::Bar bar{entry.number("chapter", 1), entry.text("test"), entry.number("points", 0)};
    check_open(entry, "chapter", bar.chapter);
    check_bar(assignment, book, bar, entry);
    entry.reject_unknown();
    assignment.bars.push_back(bar);
  }
  table.reject_unknown();
  settle(assignment, book);
  return assignment;
}

std::string to_toml(const Assignment& assignment, const Book& book, bool for_students) {
  std::string text = "# The open exercises of this assignment and their points.\n";
  text += fmt::format("title = {}\n", quoted(assignment.title));
  if (!assignment.due.empty()) text += fmt::format("due = {}\n", quoted(assignment.due));
  text += fmt::format("hints = {}\n", assignment.hints);
  if (!for_students)
    text += fmt::format("hidden_results = {}\nleaderboard = {}\n", quoted(assignment.hidden_results),
                        assignment.leaderboard);
  for (const Assignment::Exercise& exercise : assignment.exercises)
    text += fmt::format("\n[[exercise]]\nid = {}\npoints = {}\n", quoted(exercise.id), exercise.points);
  for (const Assignment::Whole& whole : assignment.chapters)
    text += fmt::format("\n[[chapter]]\nnumber = {}\npoints = {}\n", whole.chapter, whole.points);
  for (const Assignment::Bar& bar : assignment.bars) {
    const Chapter* chapter = book.find(bar.chapter);
    if (for_students && (chapter == nullptr || !has_test(*chapter, bar.test))) continue;
    text += fmt::format("\n[[bar]]\nchapter = {}\ntest = {}\npoints = {}\n", bar.chapter, quoted(bar.test), bar.points);
  }
  return text;
}

}  // namespace workbook::grading
