#include "common/grading/grade_one.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "common/book/files.hpp"
#include "common/grading/confine.hpp"
#include "common/grading/given.hpp"
#include "common/grading/points.hpp"
#include "common/grading/repeat.hpp"
#include "common/grading/screen.hpp"
#include "common/judge/run.hpp"

namespace workbook::grading {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using judge::ChapterRun, judge::Result, judge::RunRequest, judge::Tree, judge::Verdict, judge::Workspace;
using Files = std::map<std::string, std::string>;  ///< name relative to the book -> text

bool is_of(const Chapter& chapter, const std::string& file) {
  return file.starts_with("chapters/" + chapter.name() + "/");
}

/// A mirror of the book in a folder that only we can read: the pristine chapters with the submission's files over them.
Workspace mirror_book(const Course& course, const fs::path& folder, const Files& handed_in) {
  const Workspace& workspace = course.workspace;
  fs::remove_all(folder / "chapters");
  for (const auto& [name, text] : course.pristine) book::write_file(folder / name, text);
  for (const auto& [name, text] : handed_in) book::write_file(folder / name, confined(text));
  for (const char* name : {"solutions", "tests", "common"}) {
    if (!fs::exists(folder / name)) fs::create_directory_symlink(workspace.book.root / name, folder / name);
  }
  fs::create_directories(folder / "build");
  if (!fs::exists(folder / "build" / "bin")) {
    fs::create_directory_symlink(workspace.toolchain.build_folder / "bin", folder / "build" / "bin");
  }
  Workspace mirror = workspace;
  mirror.book.root = folder;
  mirror.toolchain.build_folder = folder / "build";
  mirror.toolchain.root = folder;
  mirror.on_progress = {};
  return mirror;
}

void add_test(const Course& course, const Chapter& chapter, const Verdict& verdict, GradedSubmission& graded) {
  graded.tests.push_back({verdict, item_of(course.assignment, chapter.number, verdict)});
}

/// Of the hidden tests that a program did not get to, nobody knows the names: each exercise fails one that stands for
/// them.
void add_unfinished(const Course& course, const ChapterRun& run, const Chapter& chapter, GradedSubmission& graded) {
  for (const book::Exercise& exercise : chapter.exercises) {
    Verdict verdict;
    verdict.chapter = chapter.name();
    verdict.exercise = exercise.id;
    verdict.test = "the hidden tests came to an end";
    verdict.backend = run.backend;
    verdict.result = Result::timed_out;
    verdict.hidden = true;
    verdict.finished = false;
    add_test(course, chapter, verdict, graded);
  }
}

/// Takes over what a test program said about the exercises that are graded.
void take_tests(const Course& course, const Chapter& chapter, const ChapterRun& run, bool hidden,
                GradedSubmission& graded) {
  // An exercise for which nothing compiled says what the whole chapter's compiler said: the student's own lines only.
  std::string whole_log;
  for (const Verdict& verdict : run.tests) {
    if (verdict.exercise == judge::kWhole && verdict.result == Result::not_compiled) whole_log = verdict.message;
  }
  for (Verdict verdict : run.tests) {
    if (verdict.exercise != judge::kWhole && !course.assignment.is_open(verdict.exercise)) continue;
    if (verdict.result == Result::not_compiled && !whole_log.empty()) verdict.message = whole_log;
    add_test(course, chapter, verdict, graded);
  }
  if (hidden && !run.finished) add_unfinished(course, run, chapter, graded);
  for (const std::string& note : run.notes) {
    if (!std::ranges::count(graded.notes, note)) graded.notes.push_back(note);
  }
}

/// What in the source has no place in an answer, as verdicts of its chapter's items; true if there is any.
bool reject(const Course& course, const Chapter& chapter, const Files& handed_in, GradedSubmission& graded) {
  Verdict verdict;
  verdict.chapter = chapter.name();
  verdict.test = "the source can be graded";
  verdict.backend = course.backends.at(chapter.number).front();
  verdict.result = Result::rejected;
  for (const auto& [name, text] : handed_in) {
    if (!is_of(chapter, name)) continue;
    for (const Refusal& refusal : screen_source(text, course.pristine.at(name))) {
      if (!verdict.place) verdict.place = {name, refusal.line};
      verdict.message += fmt::format("{}:{}: {} has no place in an answer\n", name, refusal.line, refusal.what);
    }
  }
  if (!verdict.place) return false;
  for (const book::Exercise& exercise : chapter.exercises) {
    verdict.exercise = exercise.id;
    graded.tests.push_back({verdict, exercise.id});
  }
  verdict.exercise = judge::kWhole;
  graded.tests.push_back({verdict, chapter_item(chapter.number)});
  for (std::size_t i = 0; i < course.assignment.bars.size(); ++i) {
    if (course.assignment.bars[i].chapter == chapter.number) graded.tests.push_back({verdict, bar_item(i)});
  }
  return true;
}

/// What an exercise is judged on, so far as an answer could turn it to its use: the whole chapter stands in for a graft
/// only with the given code as it was given, and is asked where a graft would call the answer by way of the book's.
void distrust(const Course& course, const Chapter& chapter, const Files& handed_in, RunRequest& request) {
  Files solution, source;
  for (const std::string& file : chapter.files) {
    const fs::path path = course.workspace.book.solution(chapter, file);
    if (fs::exists(path)) solution[file] = book::read_file(path);
    const std::string name = "chapters/" + chapter.name() + "/" + file;
    const auto found = handed_in.find(name);
    if (found == handed_in.end()) continue;
    source[file] = found->second;
    request.whole_stands_in = request.whole_stands_in && keeps_given(found->second, course.pristine.at(name));
  }
  request.on_whole = circular_exercises(solution, source);
}

/// Runs a chapter's tests, public and hidden, on each of its backends.
void run_chapter(const Course& course, const Workspace& mirror, const Chapter& chapter, const Files& handed_in,
                 Shared& shared, unsigned slot, GradedSubmission& graded) {
  RunRequest request;
  request.time_limit = course.options.time_limit;
  request.total_time = shared.total_time.at(chapter.number);
  request.gpu_grafts = true;
  request.build = [&](const std::vector<worker::WorkerJob>& jobs) { return shared.workshop.build(slot, jobs); };
  distrust(course, chapter, handed_in, request);
  const Tree tree{"submission", mirror.book.root / "chapters" / chapter.name()};
  for (const Backend backend : course.backends.at(chapter.number)) {
    request.backend = backend;
    request.worker_prefix = shared.workshop.worker_prefix(slot, backend);
    request.program.clear();
    request.hidden = false;
    const judge::Plan plan = make_plan(mirror, chapter, tree, request);
    const judge::Built built = shared.turns.beside_others([&] { return build_plans(mirror, {plan}, request.build); });
    const auto start = std::chrono::steady_clock::now();
    const auto run_all = [&] {
      ChapterRun run = shared.turns.beside_others([&] { return run_plan(mirror, plan, built, request); });
      repeat_slow_tests(run.tests, shared.turns, [&](const std::string& test) -> std::optional<Verdict> {
        RunRequest alone = request;
        alone.only = test;
        const ChapterRun again = run_plan(mirror, plan, built, alone);
        const auto found = std::ranges::find(again.tests, test, &Verdict::test);
        return found == again.tests.end() ? std::nullopt : std::optional(*found);
      });
      take_tests(course, chapter, run, request.hidden, graded);
    };
    run_all();
    const auto hidden = course.hidden_programs.find(chapter.number);
    if (hidden == course.hidden_programs.end()) continue;
    request.program = hidden->second;
    request.hidden = true;
    // What the public tests have left, but enough for a few calls.
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    request.total_time = std::max(request.total_time - taken, 3 * request.time_limit);
    run_all();
  }
}

/// What did not pass, or else why nothing could run; empty if all is well.
std::string what_failed(const ChapterRun& run) {
  if (run.none_failed() && run.count(Result::passed) > 0) return "";
  std::string why = "no test ran";
  for (const Verdict& verdict : run.tests) {
    if (verdict.result == Result::passed) continue;
    why = fmt::format("\"{}\": {}\n{}", verdict.test, name(verdict.result), verdict.message);
    if (verdict.result != Result::skipped) break;
  }
  return why;
}

}  // namespace

void Untouched::add(int chapter, GradedSubmission& graded, const std::function<void(GradedSubmission&)>& find_out) {
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = known_.try_emplace(chapter);
  if (is_new) {
    try {
      find_out(known->second);
    } catch (...) {
      known_.erase(known);
      throw;
    }
  }
  graded.tests.insert(graded.tests.end(), known->second.tests.begin(), known->second.tests.end());
  graded.notes.insert(graded.notes.end(), known->second.notes.begin(), known->second.notes.end());
}

GradedSubmission grade_one(const Course& course, Shared& shared, unsigned slot, const HandedIn& handed_in) {
  const auto start = std::chrono::steady_clock::now();
  GradedSubmission graded;
  graded.notes = handed_in.notes;
  shared.workshop.clear(slot);
  const Workspace mirror = mirror_book(course, shared.workshop.mirror(slot), handed_in.files);
  for (const Chapter& chapter : course.chapters) {
    if (reject(course, chapter, handed_in.files, graded)) continue;
    const auto run = [&](GradedSubmission& into) {
      run_chapter(course, mirror, chapter, handed_in.files, shared, slot, into);
    };
    const bool touched = std::ranges::any_of(handed_in.files, [&](const auto& file) {
      return is_of(chapter, file.first) && file.second != course.pristine.at(file.first);
    });
    if (touched) {
      run(graded);
    } else {
      shared.untouched.add(chapter.number, graded, run);
    }
  }
  shared.workshop.clear(slot);
  graded.items = give_points(course.assignment, course.workspace.book, graded.tests);
  graded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return graded;
}

std::map<int, double> prove_solutions(const Course& course, Workshop& workshop) {
  const Workspace& workspace = course.workspace;
  std::map<int, double> seconds;
  for (const Chapter& chapter : course.chapters) {
    for (const Backend backend : course.backends.at(chapter.number)) {
      workspace.progress(fmt::format("chapter {}: the book's solution on {}", chapter.number, text(backend)));
      RunRequest request;
      request.backend = backend;
      request.time_limit = course.options.time_limit;
      request.total_time = course.options.total_time;
      request.build = [&](const std::vector<worker::WorkerJob>& jobs) { return workshop.build(0, jobs); };
      request.worker_prefix = workshop.worker_prefix(0, backend);
      const Chapter& all = *workspace.book.find(chapter.number);  // with the exercises that are not graded
      // Handed in, as it were: compiled, and judged once compiled, as a submission is.
      const Tree tree{"submission", solutions_tree(workspace, all).folder};
      const judge::Plan plan = make_plan(workspace, all, tree, request);
      const judge::Built built = build_plans(workspace, {plan}, request.build);
      const auto start = std::chrono::steady_clock::now();
      const ChapterRun run = run_plan(workspace, plan, built, request);
      seconds[chapter.number] += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      workspace.progress("");
      const std::string why = what_failed(run);
      if (why.empty()) continue;
      throw judge::EnvironmentError(
          fmt::format("the book's own solution of chapter {} does not pass on {} as submissions would run there: {}",
                      chapter.number, text(backend), why));
    }
  }
  return seconds;
}

}  // namespace workbook::grading
