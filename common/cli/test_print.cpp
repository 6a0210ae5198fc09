#include "common/cli/test_print.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/progress.hpp"
#include "common/book/text.hpp"
#include "common/cli/next_step.hpp"
#include "common/judge/localize.hpp"

namespace workbook::cli {
namespace {

using book::Chapter, book::Progress;
using judge::ChapterRun, judge::Result, judge::Verdict;

using Lines = std::vector<std::string>;
using Verdicts = std::vector<const Verdict*>;

constexpr std::size_t kMostLines = 30;      // printed for a failing exercise
constexpr std::size_t kLeastOfMessage = 8;  // of the first failing test's message, however many others fail
constexpr std::size_t kMostPrinted = 5;     // of a passed test's message
constexpr std::size_t kMostCauses = 3;

/// The test did not run, so it is neither right nor wrong.
bool did_not_run(Result result) {
  return result == Result::todo || result == Result::blocked || result == Result::skipped;
}
bool is_failure(const Verdict& test) {
  return test.result != Result::passed && !did_not_run(test.result);
}

Lines lines_of(const std::string& text, const std::string& indent) {
  Lines lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(indent + line);
  return lines;
}

/// The first `most` lines, then the number of omitted lines.
Lines cut(Lines lines, std::size_t most, const std::string& indent) {
  if (lines.size() <= most) return lines;
  const std::size_t left = lines.size() - most + 1;
  lines.resize(most - 1);
  lines.push_back(fmt::format("{}… {} more lines: --verbose shows them", indent, left));
  return lines;
}

std::string test_line(const Session& session, const Verdict& test) {
  const char* color = test.result == Result::passed ? "green" : did_not_run(test.result) ? "yellow" : "red";
  std::string line =
      fmt::format("  {}  {}", session.colored(fmt::format("{:<7}", name(test.result)), color), test.test);
  if (test.result == Result::todo && test.place)
    line += fmt::format("   todo {} ({}:{})", test.exercise, test.place->file, test.place->line);
  if (test.result == Result::blocked || test.result == Result::skipped) line += "   " + test.message;
  return line;
}

/// The causes that the failing tests suggest together, and the location of the exercise.
Lines conclusion(const Session& session, const Verdicts& tests, const Verdict& first) {
  Lines lines;
  judge::Conclusion found = judge::conclude(tests);
  const bool has_cause = !found.causes.empty() && !found.may_follow;
  // A cause without a sentence is already in the test's own message.
  std::erase_if(found.causes, [](const judge::Cause& cause) { return cause.text().empty(); });
  for (std::size_t i = 0; has_cause && i < std::min(found.causes.size(), kMostCauses); ++i)
    lines.push_back(
        fmt::format("    {} {}", session.colored(i == 0 ? "likely cause:" : "or:", "bold"), found.causes[i].text()));
  if (!has_cause && first.result == Result::failed && found.facts.empty())
    lines.emplace_back("    likely cause: unknown (no known wrong solution gives these values)");
  if (found.may_follow)
    lines.push_back(fmt::format("    another test reports: {}; this may follow from the wrong values above",
                                found.causes.front().text()));
  for (const std::string& fact : found.facts) lines.push_back("    " + fact);
  if (first.result == Result::crashed && first.exercise != judge::kWhole)
    lines.push_back(fmt::format("    ./workbook test {} --debug stops at the line where it happens", first.exercise));
  if (first.place) {
    lines.push_back(fmt::format("    see: {}:{}      more help: ./workbook hint {}", first.place->file,
                                first.place->line, first.exercise));
  }
  return lines;
}

/// The failing test that is shown in full: the first that led to the likeliest cause, so that its report appears next
/// to the cause; without a cause, or if wrong values may have led to it, the first failing test. The end if none fails.
Verdicts::const_iterator shown_in_full(const Verdicts& tests) {
  const auto first = std::ranges::find_if(tests, [](const Verdict* test) { return is_failure(*test); });
  const judge::Conclusion found = judge::conclude(tests);
  if (found.causes.empty() || found.may_follow) return first;
  const auto explained = std::ranges::find_if(tests, [&](const Verdict* test) {
    return is_failure(*test) && test->cause && test->cause->id == found.causes.front().id;
  });
  return explained == tests.end() ? first : explained;
}

/// Prints the tests of one exercise, or those of the whole chapter. `shown`: messages already printed, such as a
/// compiler's log that all tests share. `earlier`: a failing exercise of the chapter. The whole chapter's tests run
/// that exercise too, so no cause is derived from them.
void print_exercise(const Session& session, const std::string& heading, const Verdicts& tests, bool verbose,
                    std::set<std::string>& shown, const std::string& earlier = "") {
  if (tests.empty()) return;
  const auto failing = shown_in_full(tests);
  Lines end;
  if (failing != tests.end() && earlier.empty()) end = conclusion(session, tests, **failing);
  if (failing != tests.end() && !earlier.empty())
    end = {fmt::format("    exercise {} fails, and these tests run it too: fix it first", earlier)};
  const std::size_t others = 1 + tests.size() + end.size();
  const std::size_t room = verbose ? SIZE_MAX : std::max(kLeastOfMessage, kMostLines - std::min(kMostLines, others));
  Lines lines{heading};
  for (const Verdict* test : tests) {
    lines.push_back(test_line(session, *test));
    if (test->message.empty() || did_not_run(test->result)) continue;
    Lines more;
    if (test->result == Result::passed) {
      more = cut(lines_of(test->message, "           "), verbose ? SIZE_MAX : kMostPrinted, "           ");
    } else if (verbose || (test == *failing && earlier.empty())) {
      more = shown.insert(test->message).second ? cut(lines_of(test->message, "    "), room, "    ")
                                                : Lines{"    (the same as above)"};
    }
    lines.insert(lines.end(), more.begin(), more.end());
  }
  lines.insert(lines.end(), end.begin(), end.end());
  for (const std::string& line : lines) fmt::print("{}\n", line);
}

Verdicts tests_of(const ChapterRun& run, const std::string& exercise) {
  Verdicts tests;
  for (const Verdict& test : run.tests) {
    if (test.exercise == exercise) tests.push_back(&test);
  }
  return tests;
}

/// The exercises with a failing test, in order.
std::vector<std::string> failing_exercises(const ChapterRun& run) {
  std::vector<std::string> failing;
  for (const book::Exercise& exercise : run.chapter->exercises) {
    const Verdicts tests = tests_of(run, exercise.id);
    if (std::ranges::any_of(tests, [](const Verdict* test) { return is_failure(*test); }))
      failing.push_back(exercise.id);
  }
  return failing;
}

/// The number of tests per kind of result: "7 passed, 1 failed, 3 todo".
std::string counts_text(const ChapterRun& run) {
  std::string text;
  for (const Result result : judge::kResults) {
    if (run.count(result) > 0 || result == Result::passed) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", run.count(result), name(result));
    }
  }
  return text;
}

/// Whether that line contains a lab's WORKBOOK_FIX.
bool is_lab_line(const Session& session, const judge::SourceLocation& place) {
  std::istringstream text(book::read_file(session.book.root / place.file));
  std::string line;
  for (int number = 0; number < place.line && std::getline(text, line); ++number) {
  }
  return line.find("WORKBOOK_FIX(") != std::string::npos;
}

std::string next_of(const Session& session, const ChapterRun& run, const Verdict& test) {
  const Chapter& chapter = *run.chapter;
  if (test.exercise == judge::kWhole)
    return fmt::format(
        "fix chapter {}: each exercise passes alone, but the chapter as a whole must do more, or the exercises do not "
        "fit together; then ./workbook test {}",
        chapter.number, chapter.number);
  if (test.result != Result::todo)
    return fmt::format("fix exercise {}, then ./workbook test {}", test.exercise, test.exercise);
  if (test.place && is_lab_line(session, *test.place))
    return fmt::format(
        "exercise {}, {}: fix the mistake, and delete the line with WORKBOOK_FIX ({}:{}), which marks the exercise as "
        "open",
        test.exercise, chapter.find(test.exercise)->title, test.place->file, test.place->line);
  return fmt::format("exercise {}, {}: open {}:{}, lesson in {}", test.exercise, chapter.find(test.exercise)->title,
                     test.place ? test.place->file : "", test.place ? test.place->line : 0,
                     session.shown(session.book.root / "chapters" / chapter.name() / "README.md"));
}

/// The run's tests in the order of the chapter's exercises, with the whole chapter's tests last. They run in the order
/// of the test files, where a lab may come first.
Verdicts in_order_of_exercises(const ChapterRun& run) {
  Verdicts all;
  for (const book::Exercise& exercise : run.chapter->exercises)
    for (const Verdict* test : tests_of(run, exercise.id)) all.push_back(test);
  for (const Verdict* test : tests_of(run, judge::kWhole)) all.push_back(test);
  return all;
}

}  // namespace

std::string print_first_failure(const ChapterRun& run) {
  const Verdicts tests = in_order_of_exercises(run);
  const auto failing = std::ranges::find_if(tests, [](const Verdict* test) { return is_failure(*test); });
  if (failing == tests.end()) return "";
  for (const std::string& line : cut(lines_of((*failing)->message, "    "), kMostLines, "    "))
    fmt::print("{}\n", line);
  fmt::print("    … looking for the cause\n");
  std::fflush(stdout);
  return (*failing)->message;
}

void print_run(const Session& session, const std::vector<ChapterRun>& runs, const ChapterRun& run, bool verbose,
               std::set<std::string> shown) {
  if (!run.unavailable.empty()) return;
  const Chapter& chapter = *run.chapter;
  const bool several = chapter.backends.size() > 1;
  fmt::print("{}\n", session.colored(fmt::format("Chapter {}: {} ({}{})", chapter.number, chapter.title,
                                                 run.tree == "solutions" ? "the book's solution" : "your code",
                                                 several ? std::string(", on ") + text(run.backend) : ""),
                                     "bold"));
  if (!run.own_warnings.empty()) {
    fmt::print("warnings:\n");
    for (const std::string& line : lines_of(run.own_warnings, "    ")) fmt::print("{}\n", line);
  }
  // On a GPU each exercise is tested with the reader's other exercises, so a failure on an earlier backend is the
  // cause.
  std::set<std::string> failed_before;
  for (const ChapterRun* before = runs.data(); before != &run; ++before)
    for (const std::string& id : failing_exercises(*before)) failed_before.insert(id);
  for (const book::Exercise& exercise : chapter.exercises) {
    const bool follows = !failed_before.empty() && !failed_before.contains(exercise.id);
    print_exercise(session, exercise.id + " " + exercise.title, tests_of(run, exercise.id), verbose, shown,
                   follows ? *failed_before.begin() : "");
  }
  std::vector<std::string> failing = failing_exercises(run);
  if (!failed_before.empty()) failing.assign(1, *failed_before.begin());
  print_exercise(session, "the whole chapter", tests_of(run, judge::kWhole), verbose, shown,
                 failing.empty() ? "" : failing.front());
  for (const std::string& note : run.notes) fmt::print("note: {}\n", note);
  fmt::print("{}\n", counts_text(run));
}

void print_unavailable(const Session& session, const std::vector<ChapterRun>& runs) {
  std::set<Backend> reported;
  for (const ChapterRun& run : runs) {
    if (run.unavailable.empty() || !reported.insert(run.backend).second) continue;
    fmt::print("{}\n", session.colored(fmt::format("not on {}: {}", text(run.backend), run.unavailable), "yellow"));
  }
}

void print_next(const Session& session, const std::vector<ChapterRun>& runs, const std::string& exercise) {
  // Failures come before open exercises.
  for (const ChapterRun& run : runs) {
    const Verdicts tests = in_order_of_exercises(run);
    const auto failing = std::ranges::find_if(tests, [](const Verdict* test) { return is_failure(*test); });
    if (failing == tests.end()) continue;
    fmt::print("next: {}\n", next_of(session, run, **failing));
    return;
  }
  const ChapterRun* passed = nullptr;
  for (const ChapterRun& run : runs) {
    for (const Verdict* test : in_order_of_exercises(run)) {
      if (test->result == Result::skipped || test->result == Result::blocked) continue;
      const book::Exercise* const tested = run.chapter->find(test->exercise);
      if (test->result == Result::todo && tested != nullptr && tested->points == 0) continue;
      if (test->result == Result::passed) {
        passed = &run;
        continue;
      }
      fmt::print("next: {}\n", next_of(session, run, *test));
      return;
    }
  }
  if (passed == nullptr) {
    fmt::print("next: ./workbook doctor lists what is missing on this machine\n");
  } else if (passed->tree == "solutions" && !is_finished(session, *passed->chapter, exercise)) {
    fmt::print("next: your own code: ./workbook test {}\n",
               exercise.empty() ? std::to_string(passed->chapter->number) : exercise);
  } else {
    fmt::print("next: {}\n", after_passing(session, runs, *passed->chapter, exercise));
  }
}

}  // namespace workbook::cli
