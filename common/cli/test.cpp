// test: a chapter's tests on the reader's code, each exercise judged alone, and what to do about what failed.
#include <algorithm>
#include <map>
#include <set>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/book/progress.hpp"
#include "common/book/text.hpp"
#include "common/cli/verbs.hpp"
#include "common/grading/points.hpp"
#include "common/grading/report.hpp"
#include "common/judge/run.hpp"

namespace workbook::cli {
namespace {

using book::Chapter, book::indented;
using judge::ChapterRun, judge::Result, judge::RunRequest, judge::Tree, judge::Verdict;

/// Neither right nor wrong: nothing ran.
bool did_not_run(Result result) {
  return result == Result::todo || result == Result::blocked || result == Result::skipped;
}

std::string mark(const Session& session, Result result) {
  const char* color = result == Result::passed ? "green" : did_not_run(result) ? "yellow" : "red";
  return session.colored(fmt::format("{:<7}", name(result)), color);
}

void print_test(const Session& session, const Verdict& test, std::set<std::string>& shown) {
  fmt::print("  {}  {}", mark(session, test.result), test.test);
  if (test.result == Result::todo && test.place)
    fmt::print("   todo {} ({}:{})", test.exercise, test.place->file, test.place->line);
  if (test.result == Result::blocked || test.result == Result::skipped) fmt::print("   {}", test.message);
  fmt::print("\n");
  if (test.result == Result::passed && !test.message.empty()) fmt::print("{}\n", indented(test.message, "           "));
  if (test.result == Result::passed || did_not_run(test.result)) return;
  // The same long text (a compiler's log) is shown once.
  if (!test.message.empty()) {
    fmt::print("{}\n", shown.insert(test.message).second ? indented(test.message, "    ") : "    (the same as above)");
  }
  if (test.cause) {
    fmt::print("    {} {}\n", session.colored("likely cause:", "bold"), test.cause->text());
  } else if (test.result == Result::failed) {
    fmt::print("    likely cause: cannot be told: it is none of the mistakes that the book knows\n");
  }
  if (test.place) {
    fmt::print("    look at: {}:{}      more help: ./workbook hint {}\n", test.place->file, test.place->line,
               test.exercise);
  }
}

/// One line a kind of result that occurs: "7 passed, 1 failed, 3 todo".
std::string counts_text(const ChapterRun& run) {
  std::string text;
  for (const Result result : {Result::passed, Result::failed, Result::todo, Result::blocked, Result::skipped,
                              Result::crashed, Result::timed_out, Result::not_compiled}) {
    if (run.count(result) > 0 || result == Result::passed) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", run.count(result), name(result));
    }
  }
  return text;
}

/// The reason why nothing of a run ran: all tests are skipped for it, or there is no GPU for those that are not open.
std::string why_nothing_ran(const ChapterRun& run) {
  bool all_for_one = !run.tests.empty();
  std::string no_device;
  for (const Verdict& test : run.tests) {
    const bool skipped = test.result == Result::skipped;
    if (!did_not_run(test.result)) return "";
    all_for_one = all_for_one && skipped && test.message == run.tests[0].message;
    if (skipped && test.unavailable) no_device = test.message;
  }
  if (all_for_one) return run.tests[0].message;
  return run.backend == Backend::cuda && no_device.empty() && !worker::gpu_present() ? "no CUDA device" : no_device;
}

void print_run(const Session& session, const ChapterRun& run) {
  const Chapter& chapter = *run.chapter;
  const bool several = chapter.backends.size() > 1;
  fmt::print("{}\n", session.colored(fmt::format("Chapter {}: {} ({}{})", chapter.number, chapter.title,
                                                 run.tree == "solutions" ? "the book's solution" : "your code",
                                                 several ? std::string(", on ") + text(run.backend) : ""),
                                     "bold"));
  if (const std::string why = why_nothing_ran(run); !why.empty()) {
    fmt::print("{}: {}\n", session.colored(fmt::format("{} skipped", run.tests.size()), "yellow"), why);
    return;
  }
  if (!run.warnings.empty()) fmt::print("the compiler warns:\n{}\n", indented(run.warnings, "    "));
  std::set<std::string> shown;
  for (const book::Exercise& exercise : chapter.exercises) {
    bool first = true;
    for (const Verdict& test : run.tests) {
      if (test.exercise != exercise.id) continue;
      if (first) fmt::print("{} {}\n", exercise.id, exercise.title);
      first = false;
      print_test(session, test, shown);
    }
  }
  bool first = true;
  for (const Verdict& test : run.tests) {
    if (test.exercise != judge::kWhole) continue;
    if (first) fmt::print("the whole chapter\n");
    first = false;
    print_test(session, test, shown);
  }
  for (const std::string& note : run.notes) fmt::print("note: {}\n", note);
  fmt::print("{}\n", counts_text(run));
}

/// Exercises all of whose tests ran and passed, or not, to be remembered; a failure on any backend counts.
std::map<std::string, bool> exercise_results(const Chapter& chapter, const std::vector<ChapterRun>& runs) {
  std::map<std::string, bool> results;
  for (const book::Exercise& exercise : chapter.exercises) {
    std::set<std::string> ran;
    bool passed = true;
    for (const ChapterRun& run : runs) {
      for (const Verdict& test : run.tests) {
        if (test.exercise != exercise.id || test.result == Result::skipped) continue;
        ran.insert(test.test);
        passed = passed && test.result == Result::passed;
      }
    }
    // A failure is remembered in any case, a pass only if nothing was left out.
    if (!ran.empty() && (!passed || ran.size() >= exercise.tests.size())) results[exercise.id] = passed;
  }
  return results;
}

/// Whether there was something left to do, and it was printed.
bool print_next(const Session& session, const ChapterRun& run) {
  for (const book::Exercise& exercise : run.chapter->exercises) {
    for (const Verdict& test : run.tests) {
      if (test.exercise != exercise.id || test.result == Result::passed || test.result == Result::skipped) continue;
      if (test.result == Result::todo) {
        fmt::print("next: exercise {}, {}: open {}:{}, lesson in {}\n", exercise.id, exercise.title,
                   test.place ? test.place->file : "", test.place ? test.place->line : 0,
                   session.shown(session.book.root / "chapters" / run.chapter->name() / "README.md"));
      } else {
        fmt::print("next: mend exercise {}, then ./workbook test {}\n", exercise.id, run.chapter->number);
      }
      return true;
    }
  }
  return false;
}

/// The results in the form that the files for other programs are made from. Points are the book's.
grading::GradedSubmission empty_report() {
  grading::GradedSubmission report;
  report.student = "your code";
  report.assignment = "The FlashAttention Workbook";
  report.hidden_results = "visible";
  return report;
}

void add_to_report(grading::GradedSubmission& report, const Chapter& chapter, const std::vector<ChapterRun>& runs) {
  std::vector<Verdict> verdicts;
  for (const ChapterRun& run : runs) verdicts.insert(verdicts.end(), run.tests.begin(), run.tests.end());
  add_tested(report, chapter, verdicts);
}

/// The tests of a chapter, or of one of its exercises.
std::vector<std::string> test_names(const Chapter& chapter, const std::string& exercise) {
  std::vector<std::string> names;
  for (const book::Exercise& other : chapter.exercises) {
    if (exercise.empty() || exercise == other.id) names.insert(names.end(), other.tests.begin(), other.tests.end());
  }
  if (exercise.empty()) names.insert(names.end(), chapter.whole_tests.begin(), chapter.whole_tests.end());
  return names;
}

}  // namespace

int test(const Session& session, const TestOptions& options) {
  struct Wanted {
    const Chapter* chapter;
    std::string exercise;
  };
  std::vector<Wanted> wanted;
  for (const std::string& which : options.chapters) {
    const std::size_t point = which.find('.');
    if (point == std::string::npos) {
      wanted.push_back({&session.book.chapter(which), ""});
    } else {
      const book::Exercise& exercise = session.book.exercise(which);
      wanted.push_back({&session.book.chapter(which.substr(0, point)), exercise.id});
    }
  }
  if (wanted.empty()) {
    for (const Chapter& chapter : session.book.chapters) wanted.push_back({&chapter, ""});
  }
  if (!options.only.empty()) {
    // Without a chapter given, those that have the test; and its names before anything is built.
    std::vector<std::string> names;
    std::erase_if(wanted, [&](const Wanted& want) {
      const std::vector<std::string> here = test_names(*want.chapter, want.exercise);
      names.insert(names.end(), here.begin(), here.end());
      return std::find(here.begin(), here.end(), options.only) == here.end();
    });
    if (wanted.empty()) {
      fail_input("--only \"{}\": there is no such test; allowed: \"{}\"", options.only, fmt::join(names, "\", \""));
    }
  }
  if (options.debug && options.only.empty()) {
    fail_input("--debug needs one test beside it; allowed: --debug --only \"its name\"");
  }
  for (const Wanted& want : wanted) {
    if (options.solutions && !session.book.has_solutions(*want.chapter)) {
      fail_input("--solutions: there is no solution of chapter {} here; allowed: your own code", want.chapter->number);
    }
  }

  if (!options.backend.empty()) {
    std::erase_if(wanted,
                  [&](const Wanted& want) { return !want.chapter->runs_on(worker::backend_of(options.backend)); });
    if (wanted.empty()) fail_input("--backend {}: none of these chapters runs on it", options.backend);
  }

  bool passed = true;
  grading::GradedSubmission report = empty_report();
  nlohmann::json documents = nlohmann::json::array();
  for (const Wanted& want : wanted) {
    const Chapter& chapter = *want.chapter;
    session.progress(fmt::format("chapter {}: building", chapter.number));
    worker::build_targets(session.toolchain, test_targets(session, chapter));
    RunRequest request;
    request.only = options.only;
    request.exercise = want.exercise;
    request.debug = options.debug;
    request.sanitizer = options.sanitizer;
    request.time_limit = options.time_limit;
    request.previous_readers = options.previous == "chapters";
    const Tree tree = options.solutions ? solutions_tree(session, chapter) : readers_tree(session, chapter);
    const std::vector<ChapterRun> runs =
        run_on_backends(session, chapter, tree, request, worker::backend_named(options.backend));
    if (runs.empty()) {
      fmt::print(
          stderr, "no test ran{}\n",
          options.only.empty()
              ? ": a defect of the book"
              : ": chapter " + std::to_string(chapter.number) + " has no test named \"" + options.only + "\"" +
                    (options.backend.empty() ? "" : std::string(" on ") + text(worker::backend_of(options.backend))));
      return options.only.empty() ? kTestFailed : kUsage;
    }
    if (!options.solutions) book::save_progress(session.book, exercise_results(chapter, runs));
    passed = passed && all_passed(runs);
    add_to_report(report, chapter, runs);
    if (session.json) {
      for (const ChapterRun& run : runs) documents.push_back(judge::to_json(run));
    } else {
      for (const ChapterRun& run : runs) print_run(session, run);
      if (!options.solutions) {
        for (const ChapterRun& run : runs) {
          if (print_next(session, run)) break;
        }
      }
    }
  }
  if (!options.junit.empty()) book::write_file(options.junit, grading::junit_xml(report));
  if (!options.summary.empty()) {
    const std::string before = std::filesystem::exists(options.summary) ? book::read_file(options.summary) : "";
    book::write_file(options.summary, before + grading::feedback_page(report));
  }
  if (session.json) print_json({{"runs", documents}});
  return passed ? kDone : kTestFailed;
}

}  // namespace workbook::cli
