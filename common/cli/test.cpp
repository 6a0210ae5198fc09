// test: runs a chapter's tests on the reader's code, judges each exercise separately, and explains failures.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/book/progress.hpp"
#include "common/cli/test_print.hpp"
#include "common/cli/test_report.hpp"
#include "common/cli/verbs.hpp"
#include "common/judge/allowed.hpp"
#include "common/judge/run.hpp"
#include "common/worker/command.hpp"

namespace workbook::cli {
namespace {

using book::Chapter;
using judge::ChapterRun, judge::Result, judge::RunRequest, judge::Tree, judge::Verdict;

/// The result of each exercise, for saving: passed if all of its tests ran and passed; a failure on any backend counts.
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
    // A failure is always saved, a pass only if no test was skipped.
    if (!ran.empty() && (!passed || ran.size() >= exercise.tests.size())) results[exercise.id] = passed;
  }
  return results;
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

/// What to test: a chapter, or one of its exercises.
struct Wanted {
  const Chapter* chapter = nullptr;
  std::string exercise;
  Tree tree;
  std::vector<judge::Plan> plans = {};  ///< one per backend
};

/// Keeps the plans that have the test --only; if none has it, an InputError lists all tests.
void keep_those_with(std::vector<Wanted>& wanted, const std::string& only) {
  std::vector<std::string> names;
  std::erase_if(wanted, [&](const Wanted& want) {
    const std::vector<std::string> here = test_names(*want.chapter, want.exercise);
    names.insert(names.end(), here.begin(), here.end());
    return std::find(here.begin(), here.end(), only) == here.end();
  });
  if (wanted.empty()) fail_input("--only \"{}\": no such test; allowed: \"{}\"", only, fmt::join(names, "\", \""));
}

/// What the command line requests. InputError comes before anything is built.
std::vector<Wanted> wanted_by(const Session& session, const TestOptions& options) {
  std::vector<Wanted> wanted;
  const auto add = [&](const Chapter& chapter, const std::string& exercise) {
    wanted.push_back(
        {&chapter, exercise, options.solutions ? solutions_tree(session, chapter) : readers_tree(session, chapter)});
  };
  for (const std::string& which : options.chapters) {
    const std::size_t point = which.find('.');
    if (point == std::string::npos) {
      add(session.book.chapter(which), "");
    } else {
      const book::Exercise& exercise = session.book.exercise(which);
      add(session.book.chapter(which.substr(0, point)), exercise.id);
    }
  }
  if (wanted.empty()) {
    for (const Chapter& chapter : session.book.chapters) add(chapter, "");
  }
  if (!options.only.empty()) keep_those_with(wanted, options.only);
  for (const Wanted& want : wanted) {
    if (options.solutions && !session.book.has_solutions(*want.chapter)) {
      fail_input("--solutions: this copy of the book has no solution of chapter {}; allowed: your own code",
                 want.chapter->number);
    }
  }
  if (!options.backend.empty()) {
    std::erase_if(wanted,
                  [&](const Wanted& want) { return !want.chapter->runs_on(worker::backend_of(options.backend)); });
    if (wanted.empty()) fail_input("--backend {}: none of these chapters runs on it", options.backend);
  }
  return wanted;
}

/// Whether it is an exercise that is still open. Nothing has to be built to say so.
bool is_open(const Wanted& want) {
  const auto open = [&](const judge::Plan& plan) {
    const auto found = plan.exercises.find(want.exercise);
    return found != plan.exercises.end() && found->second.open;
  };
  return !want.plans.empty() && std::ranges::all_of(want.plans, open);
}

/// The run of an open exercise, whose tests are all todo.
ChapterRun open_run(const Session& session, const Wanted& want, const std::string& only) {
  const judge::Plan& plan = want.plans.front();
  const judge::RegionInTree& in = plan.regions.at(want.exercise);
  ChapterRun run;
  run.chapter = want.chapter;
  run.backend = plan.request.backend;
  run.tree = want.tree.name;
  for (const std::string& test : want.chapter->find(want.exercise)->tests) {
    if (!only.empty() && test != only) continue;
    Verdict& verdict = run.tests.emplace_back();
    verdict.chapter = want.chapter->name();
    verdict.exercise = want.exercise;
    verdict.test = test;
    verdict.backend = run.backend;
    verdict.result = Result::todo;
    verdict.message = "todo " + want.exercise;
    verdict.place = {session.shown(want.tree.written() / in.file), in.reader.find(want.exercise)->begin_line + 1};
  }
  return run;
}

/// Plans everything and builds it in one build, apart from open exercises.
judge::Built build_all(const Session& session, std::vector<Wanted>& wanted, RunRequest request,
                       const std::string& backend) {
  std::vector<std::string> targets;
  std::vector<judge::Plan> all;
  for (Wanted& want : wanted) {
    request.exercise = want.exercise;
    want.plans = plan_backends(session, *want.chapter, want.tree, request, worker::backend_named(backend));
    if (is_open(want)) continue;
    const std::vector<std::string> more = test_targets(session, *want.chapter);
    targets.insert(targets.end(), more.begin(), more.end());
    all.insert(all.end(), want.plans.begin(), want.plans.end());
  }
  if (all.empty()) return {};
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  session.progress(wanted.size() == 1 ? fmt::format("chapter {}: building", wanted[0].chapter->number) : "building");
  worker::build_targets(session.toolchain, targets);
  return build_plans(session, all);
}

/// What damages the chapter's files between their regions, where single exercises still compile.
std::set<std::string> damages_outside(const judge::Plan& plan) {
  std::set<std::string> messages;
  for (const auto& [id, in] : plan.regions)
    if (const book::Damage* damage = in.reader.damage_outside()) messages.insert(in.reader.message(*damage));
  return messages;
}

/// The runs of one chapter, without those that have no test.
std::vector<ChapterRun> run_wanted(const Session& session, const Wanted& want, const judge::Built& built,
                                   RunRequest request) {
  std::vector<ChapterRun> runs;
  if (is_open(want)) {
    runs.push_back(open_run(session, want, request.only));
  } else {
    for (const judge::Plan& plan : want.plans) {
      request.backend = plan.request.backend;
      request.exercise = want.exercise;
      ChapterRun run = run_plan(session, plan, built, request);
      if (run.tests.empty()) continue;
      for (const std::string& refused : judge::not_gradable(session, plan, built))
        run.notes.push_back(fmt::format("grading would refuse this: {} (notes/allowed.md)", refused));
      runs.push_back(std::move(run));
    }
  }
  const std::set<std::string> damages = damages_outside(want.plans.front());
  for (ChapterRun& run : runs) run.notes.insert(run.notes.end(), damages.begin(), damages.end());
  return runs;
}

RunRequest request_of(const TestOptions& options) {
  RunRequest request;
  request.only = options.only;
  request.sanitizer = options.sanitizer;
  request.time_limit = options.time_limit;
  request.whole_waits = true;
  request.previous_readers = options.previous == "chapters";
  return request;
}

int no_test_ran(const Chapter& chapter, const TestOptions& options) {
  if (options.only.empty()) {
    print_error("no test ran: a defect of the book\n");
    return kTestFailed;
  }
  print_error("no test ran: chapter {} has no test named \"{}\"{}\n", chapter.number, options.only,
              options.backend.empty() ? "" : std::string(" on ") + text(worker::backend_of(options.backend)));
  return kUsage;
}

/// The exercise that a test belongs to; empty: the whole chapter.
std::string exercise_of(const Chapter& chapter, const std::string& test) {
  for (const book::Exercise& exercise : chapter.exercises) {
    if (std::ranges::find(exercise.tests, test) != exercise.tests.end()) return exercise.id;
  }
  return "";
}

/// test --debug: runs the first failing test of an exercise, or the test named by --only, under a debugger that stops
/// at the exercise's first line.
int debug_test(const Session& session, const TestOptions& options) {
  std::vector<Wanted> wanted = wanted_by(session, options);
  if (wanted.size() != 1 || (wanted[0].exercise.empty() && options.only.empty()))
    fail_input("--debug needs one exercise or one test; allowed: test 2.1 --debug, or --debug --only \"NAME\"");
  if (options.backend == name(Backend::cuda))
    fail_input("--debug --backend cuda: a kernel on the GPU needs cuda-gdb; allowed: cpu or sim");
  if (std::getenv("WORKBOOK_DEBUGGER") == nullptr && worker::find_program("gdb").empty())
    throw EnvironmentError("--debug needs gdb (package gdb), or another debugger's command in WORKBOOK_DEBUGGER");
  Wanted& want = wanted[0];
  const std::string backend =
      !options.backend.empty() ? options.backend : name(judge::first_backend(session, *want.chapter));
  RunRequest request = request_of(options);
  if (request.only.empty()) {
    const judge::Built built = build_all(session, wanted, request, backend);
    const std::vector<ChapterRun> runs = run_wanted(session, want, built, request);
    for (const ChapterRun& run : runs) {
      for (const Verdict& test : run.tests) {
        if (test.result == Result::passed || test.result == Result::skipped) continue;
        if (request.only.empty()) request.only = test.test;
        if (test.result == Result::todo || test.result == Result::not_compiled || test.result == Result::blocked) {
          print_run(session, runs, run, options.verbose);
          print_next(session, runs, want.exercise);
          return kTestFailed;
        }
      }
    }
    if (request.only.empty()) request.only = want.chapter->find(want.exercise)->tests.front();
  }
  if (want.exercise.empty()) want.exercise = exercise_of(*want.chapter, request.only);
  request.debug = true;
  const judge::Built built = build_all(session, wanted, request, backend);
  session.progress("");
  fmt::print(
      "Running \"{}\" under the debugger, which stops at the exercise's first line. \"info locals\" shows the "
      "variables, \"next\" runs one line, \"continue\" runs to the end, \"quit\" ends the debugger.\n",
      request.only);
  std::fflush(stdout);
  run_wanted(session, want, built, request);
  return kDone;
}

}  // namespace

int test(const Session& session, const TestOptions& options) {
  if (options.debug) return debug_test(session, options);
  std::vector<Wanted> wanted = wanted_by(session, options);
  RunRequest request = request_of(options);
  std::set<std::string> shown;
  // Not for whole chapters, where several exercises may be wrong.
  request.small_edits = !session.json && wanted.size() == 1 && !wanted[0].exercise.empty();
  if (!session.json) {
    request.before_search = [&](const ChapterRun& run) {
      session.progress("");
      shown.insert(print_first_failure(run));
    };
  }
  const judge::Built built = build_all(session, wanted, request, options.backend);
  grading::GradedSubmission report = empty_report();
  std::vector<ChapterRun> all;
  bool passed = true;
  for (const Wanted& want : wanted) {
    const std::vector<ChapterRun> runs = run_wanted(session, want, built, request);
    if (runs.empty()) return no_test_ran(*want.chapter, options);
    if (!options.solutions) book::save_progress(session.book, exercise_results(*want.chapter, runs));
    passed = passed && all_passed(runs);
    add_to_report(report, *want.chapter, runs);
    for (const ChapterRun& run : runs) {
      if (!session.json) print_run(session, runs, run, options.verbose, shown);
    }
    all.insert(all.end(), runs.begin(), runs.end());
  }
  write_reports(report, options.junit, options.summary);
  if (session.json) {
    nlohmann::json documents = nlohmann::json::array();
    for (const ChapterRun& run : all) documents.push_back(judge::to_json(run));
    print_json({{"runs", documents}});
  } else {
    print_unavailable(session, all);
    print_next(session, all, wanted.size() == 1 ? wanted[0].exercise : "");
  }
  return passed ? kDone : kTestFailed;
}

}  // namespace workbook::cli
