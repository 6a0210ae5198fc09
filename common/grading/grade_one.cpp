#include "common/grading/grade_one.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <span>
#include <utility>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/grading/points.hpp"
#include "common/judge/run.hpp"

namespace workbook::grading {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using judge::ChapterRun, judge::Result, judge::RunRequest, judge::Tree, judge::Verdict, judge::Workspace;
using worker::WorkerBuilt;
using Files = std::map<std::string, std::string>;  ///< name relative to the book -> text

bool is_of(const Chapter& chapter, const std::string& file) {
  return file.starts_with("chapters/" + chapter.name() + "/");
}

// Arguments: a file, a line; for kLeftOut the reason.
constexpr const char* kPutBack =
    "{}:{}: you changed or removed a given line here. Grading restored it: write your code between BEGIN and END, or "
    "in new lines between the given ones";
constexpr const char* kLeftOut =
    "{}:{}: the lines that you added here were left out, since {}. Between the given lines you may add #include <…> of "
    "standard headers, and complete functions, types and macros. Grading does not include files of your own: copy what "
    "you need from them here";

bool took_too_long(const WorkerBuilt& built) {
  return built.log.starts_with("compiling took");
}

/// Why added lines were left out.
std::string why_left_out(const WorkerBuilt& built) {
  if (took_too_long(built)) return "they take too long to compile";
  const std::size_t error = built.log.find("error: "), end = built.log.find('\n', error);
  if (error == std::string::npos) return "the chapter does not compile with them";
  return fmt::format("the chapter does not compile with them ({})", built.log.substr(error, end - error));
}

constexpr int kMostRounds = 3;  ///< of the search for the exercises that an exercise's tests need

/// A random part of names that no submission can predict.
std::string new_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

/// Builds a chapter from the mirror, with the submitted bodies of the regions or without.
using BuildChapter = std::function<WorkerBuilt(bool with_bodies)>;

/// A mirror of the book in a folder that only the grader can read. It contains the submitted chapters. composed/
/// contains the code that is compiled: the pristine chapters with the submitted bodies of the regions.
class Mirror {
 public:
  Mirror(const Course& course, fs::path folder, const Files& handed_in)
      : course_(course), folder_(std::move(folder)), token_(new_token()), workspace_(course.workspace) {
    for (const char* made : {"chapters", "composed", "solutions", "headers"}) fs::remove_all(folder_ / made);
    for (const auto& [name, text] : course.pristine) {
      book::write_file(folder_ / name, text);
      book::write_file(composed(name), text);
    }
    for (const auto& [name, text] : handed_in) book::write_file(folder_ / name, text);
    const fs::path& root = course.workspace.book.root;
    fs::create_directories(folder_ / "headers");
    for (const char* name : {"tests", "common"}) link(root / name, folder_ / name);
    for (const auto& entry : fs::directory_iterator(root / "solutions"))
      link(entry.path(), folder_ / "solutions" / entry.path().filename());
    link(course.workspace.toolchain.build_folder / "bin", folder_ / "build" / "bin");
    workspace_.book.root = folder_;
    workspace_.toolchain.build_folder = folder_ / "build";
    workspace_.toolchain.root = folder_;
    workspace_.on_progress = {};
  }
  const Workspace& workspace() const { return workspace_; }
  const std::string& token() const { return token_; }
  Tree tree(const Chapter& chapter) const {
    return {"submission", folder_ / "composed" / chapter.name(), false, folder_ / "chapters" / chapter.name()};
  }

  /// Composes a chapter. Lines added between given lines are kept if the chapter compiles with them: all together, or
  /// each block by itself, without answers. Blocks that do not compile and changed given lines are noted. True if the
  /// submission includes additional headers; with_headers() then has the book's files with them.
  bool compose(const Chapter& chapter, const Files& handed_in, const BuildChapter& build,
               std::vector<std::string>& notes) {
    std::vector<Composed> files;
    bool blocks = false, headers = false;
    for (const auto& [name, text] : handed_in) {
      if (!is_of(chapter, name)) continue;
      const book::MarkedFile reader = book::parse_reader(name, text);
      files.push_back({reader, book::additions_of(reader, book::parse_reader(name, course_.pristine.at(name)))});
      const book::Additions& added = files.back().added;
      blocks = blocks || !added.blocks.empty();
      headers = headers || !added.headers.empty();
      if (added.changed_line > 0) notes.push_back(fmt::format(kPutBack, name, added.changed_line));
    }
    write(files, /*with_bodies=*/true);
    const WorkerBuilt whole = blocks ? build(/*with_bodies=*/true) : WorkerBuilt{};
    if (blocks && !whole.ok) {
      leave_out(files, !took_too_long(whole), build, notes);
      write(files, /*with_bodies=*/true);
    }
    if (!blocks && !headers) return false;
    // Blocks added beside the exercises are also added to the solution, beside the book's answers to the other
    // exercises.
    const fs::path own = folder_ / "solutions" / chapter.name(), books = fs::canonical(own);
    fs::remove(own);
    fs::copy(books, own);
    fs::copy(books, with_headers(chapter).folder);
    for (const auto& [reader, added] : files) {
      if (added.blocks.empty() && added.headers.empty()) continue;
      const fs::path file = fs::path(reader.name).filename();
      const std::string text = book::read_file(books / file);
      book::write_file(own / file, with(added, text, reader));
      book::write_file(with_headers(chapter).folder / file, with({added.headers, {}, 0}, text, reader));
    }
    return headers;
  }
  /// The book's files with the additional headers.
  Tree with_headers(const Chapter& chapter) const { return {"headers", folder_ / "headers" / chapter.name()}; }

 private:
  /// A submitted file, and its additions outside the regions.
  struct Composed {
    book::MarkedFile reader;
    book::Additions added;
  };

  /// Removes the blocks with which the given chapter does not compile, and notes them. `at_once`: all blocks may be
  /// tried together first.
  void leave_out(std::vector<Composed>& files, bool at_once, const BuildChapter& build,
                 std::vector<std::string>& notes) const {
    std::vector<std::pair<Composed*, book::Additions::Block>> wanted;
    for (Composed& file : files)
      for (const auto& block : std::exchange(file.added.blocks, {})) wanted.emplace_back(&file, block);
    int tries = 16;
    // Adds the blocks [from, to) that compile beside those before them. Most often one of many does not.
    const std::function<void(std::size_t, std::size_t)> add = [&](std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to; ++i) wanted[i].first->added.blocks.push_back(wanted[i].second);
      write(files, /*with_bodies=*/false);
      const WorkerBuilt tried = tries-- > 0 ? build(/*with_bodies=*/false) : WorkerBuilt{};
      if (tried.ok) return;
      for (std::size_t i = from; i < to; ++i) wanted[i].first->added.blocks.pop_back();
      if (to - from > 1 && tries > 0) return add(from, (from + to) / 2), add((from + to) / 2, to);
      for (const auto& [file, block] : std::span(wanted).subspan(from, to - from))
        notes.push_back(fmt::format(kLeftOut, file->reader.name, block.line, why_left_out(tried)));
    };
    if (at_once) return add(0, wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) add(i, i + 1);
  }
  /// Writes the pristine chapter with the additions, and with or without the submitted bodies.
  void write(const std::vector<Composed>& files, bool with_bodies) const {
    for (const auto& [reader, added] : files) {
      std::string text = with(added, course_.pristine.at(reader.name), reader);
      const book::MarkedFile base = book::parse_reader(reader.name, text);
      std::vector<std::string> ids;
      for (const book::Region& region : base.regions)
        if (reader.find(region.id) != nullptr) ids.push_back(region.id);
      if (with_bodies) text = book::with_bodies(base, reader, ids, token_);
      book::write_file(composed(reader.name), text);
    }
  }
  static void link(const fs::path& to, const fs::path& from) {
    fs::create_directories(from.parent_path());
    if (!fs::exists(from)) fs::create_directory_symlink(to, from);
  }
  fs::path composed(const std::string& name) const {
    return folder_ / "composed" / fs::path(name).lexically_relative("chapters");
  }
  std::string with(const book::Additions& additions, const std::string& given, const book::MarkedFile& reader) const {
    return book::with_additions(book::parse_reader(reader.name, given), additions, reader, token_);
  }

  const Course& course_;
  fs::path folder_;
  std::string token_;
  Workspace workspace_;
};

/// A key for a test on a backend.
std::string key_of(const ChapterRun& run, const Verdict& verdict) {
  return fmt::format("{} {} {}", verdict.chapter, name(run.backend), verdict.test);
}

/// Adds a test program's verdicts on the graded exercises.
void take_tests(const Shared& shared, const ChapterRun& run, GradedSubmission& graded) {
  const Assignment& assignment = shared.course.assignment;
  // An exercise that did not compile shows the log of the whole chapter, which contains only the student's own lines.
  std::string whole_log;
  for (const Verdict& verdict : run.tests)
    if (verdict.exercise == judge::kWhole && verdict.result == Result::not_compiled) whole_log = verdict.message;
  for (Verdict verdict : run.tests) {
    if (verdict.exercise != judge::kWhole && !assignment.is_open(verdict.exercise)) continue;
    if (verdict.result == Result::not_compiled && !whole_log.empty()) verdict.message = whole_log;
    // If the book's solution runs, a worker that reports itself unavailable has failed.
    verdict.unavailable = verdict.unavailable && !shared.cannot_run.contains(key_of(run, verdict));
    graded.tests.push_back({verdict, item_of(assignment, run.chapter->number, verdict)});
  }
  for (const std::string& note : run.notes)
    if (!std::ranges::count(graded.notes, note)) graded.notes.push_back(note);
}

/// Copies tests and notes.
void take_over(const GradedSubmission& from, GradedSubmission& graded) {
  graded.tests.insert(graded.tests.end(), from.tests.begin(), from.tests.end());
  graded.notes.insert(graded.notes.end(), from.notes.begin(), from.notes.end());
}

bool has_failed(const CountedTest& test) {
  return test.verdict.result > Result::skipped;
}

/// Runs the public tests of a plan that has been built, then the hidden ones.
void run_tests(const Shared& shared, const Workspace& mirror, const judge::Plan& plan, const judge::Built& built,
               RunRequest request, GradedSubmission& graded) {
  take_tests(shared, run_plan(mirror, plan, built, request), graded);
  const auto hidden = shared.course.hidden.find(plan.chapter->number);
  if (hidden == shared.course.hidden.end()) return;
  if (request.until_failure && std::ranges::any_of(graded.tests, has_failed)) return;
  request.program = hidden->second.program;
  request.hidden = true;
  // The hidden tests of an exercise whose public tests took too long have time for one call.
  for (const CountedTest& test : graded.tests)
    if (!test.verdict.finished) request.seconds[test.verdict.exercise] = request.time_limit;
  take_tests(shared, run_plan(mirror, plan, built, request), graded);
}

/// Runs all tests on the whole chapter, one backend after another, until one fails. True if everything has passed. Then
/// grafts give no further information, and compiling each would take as long as the chapter.
bool passes_whole(const Shared& shared, const Workspace& mirror, const Chapter& chapter, const Tree& tree,
                  const std::function<RunRequest(Backend)>& request_on, GradedSubmission& graded) {
  for (const Backend backend : shared.course.backends.at(chapter.number)) {
    RunRequest request = request_on(backend);
    request.grafts = false;
    request.until_failure = true;
    request.groups = {judge::kWhole};
    for (const book::Exercise& exercise : chapter.exercises) request.groups.push_back(exercise.id);
    const judge::Plan plan = make_plan(mirror, chapter, tree, request);
    const auto is_answered = [](const auto& exercise) { return !exercise.second.worker.empty(); };
    if (!std::ranges::all_of(plan.exercises, is_answered)) return false;
    run_tests(shared, mirror, plan, build_plans(mirror, {plan}, request.build), request, graded);
    if (std::ranges::any_of(graded.tests, has_failed)) return false;
  }
  return std::ranges::all_of(
      give_points(shared.course.assignment, shared.course.workspace.book, graded.tests),
      [&](const GradedItem& item) { return item.chapter != chapter.number || item.result == Result::passed; });
}

/// The common part of all test runs on a backend.
RunRequest request_for(Shared& shared, unsigned slot, Backend backend) {
  RunRequest request;
  request.backend = backend;
  request.time_limit = shared.course.options.time_limit;
  request.build = [&shared, slot](const auto& jobs) { return shared.workshop.build(slot, jobs); };
  request.worker_prefix = shared.workshop.worker_prefix(slot, backend);
  request.books = &shared.course.workspace;
  return request;
}

/// A submission of a chapter with the book's answers. Each differs from the book's own by a comment, so it has a graft.
Files books_answers(const Course& course, const Chapter& chapter) {
  Files files;
  for (const auto& [name, released] : course.pristine) {
    if (!is_of(chapter, name)) continue;
    std::string text = released;
    const fs::path path = course.workspace.book.solution(chapter, fs::path(name).filename());
    for (const book::Region& region : book::parse_reader(name, book::read_file(path)).regions) {
      std::vector<std::string> body{"//"};
      body.insert(body.end(), region.body.begin(), region.body.end());
      if (chapter.find(region.id) != nullptr)
        text = book::replace_body(book::parse_reader(name, text), region.id, body);
    }
    files[name] = text;
  }
  return files;
}

/// For each of these exercises, the others that are stubs in its graft: those without which its tests pass on the
/// book's answer. Determined once for all submissions, by running the tests.
Stubs stubs_of(Shared& shared, unsigned slot, const Chapter& chapter, RunRequest request,
               const std::set<std::string>& exercises) {
  const std::lock_guard lock(shared.stubs_mutex);
  Stubs& known = shared.stubs[{chapter.number, request.backend}];
  Stubs stubs = known;
  std::set<std::string> left;
  for (const std::string& id : exercises) {
    if (known.contains(id)) continue;
    left.insert(id);
    for (const book::Exercise& other : chapter.exercises)
      if (other.id != id) stubs[id].insert(other.id);
  }
  if (left.empty()) return known;
  const Files answers = books_answers(shared.course, chapter);
  Mirror books(shared.course, shared.workshop.mirror(slot) / "books", answers);
  GradedSubmission ignored;
  books.compose(chapter, answers, {}, ignored.notes);
  // A test reports one stub at a time. Where there are many, the tests run a whole kernel.
  for (int round = 0; !left.empty(); ++round) {
    Chapter remaining = chapter;
    std::erase_if(remaining.exercises, [&](const book::Exercise& exercise) { return !left.contains(exercise.id); });
    request.groups.assign(left.begin(), left.end());
    request.stubs = stubs;
    request.token = books.token();
    judge::Plan plan = make_plan(books.workspace(), remaining, books.tree(chapter), request);
    plan.jobs.erase(plan.whole);
    GradedSubmission found;
    run_tests(shared, books.workspace(), plan, build_plans(books.workspace(), {plan}, request.build), request, found);
    left.clear();
    for (const CountedTest& test : found.tests) {
      if (!has_failed(test) || !stubs.contains(test.verdict.exercise)) continue;
      std::set<std::string>& unneeded = stubs.at(test.verdict.exercise);
      if (test.verdict.result != Result::blocked || round == kMostRounds) unneeded.clear();
      if (unneeded.erase(test.verdict.blocked_by) > 0) left.insert(test.verdict.exercise);
    }
  }
  return known = stubs;
}

/// The exercises of a plan that are judged alone.
std::set<std::string> grafts_of(const judge::Plan& plan) {
  std::set<std::string> grafts;
  for (const auto& [id, exercise] : plan.exercises)
    if (exercise.worker.starts_with("grafts/")) grafts.insert(id);
  return grafts;
}

/// Judges the exercises whose answers have reached the stub of another exercise, which the book's answer does not, on
/// the whole chapter: with the student's own answers.
void judge_callers_on_whole(const Shared& shared, const Workspace& mirror, judge::Plan plan, const judge::Built& built,
                            RunRequest request, GradedSubmission& graded) {
  std::set<std::string> callers;
  for (const auto& [verdict, item] : graded.tests)
    if (verdict.result == Result::blocked && grafts_of(plan).contains(verdict.exercise))
      callers.insert(verdict.exercise);
  for (const std::string& id : callers) {
    std::erase_if(graded.tests, [&](const CountedTest& test) { return test.verdict.exercise == id; });
    plan.exercises.at(id).worker = plan.whole;
    request.groups = {id};
    run_tests(shared, mirror, plan, built, request, graded);
    graded.notes.push_back(fmt::format(
        "your answer to {} calls the answer to another exercise: it was tested with your own answers to the "
        "other exercises",
        id));
  }
}

/// Runs a chapter's tests, public and hidden, on each of its backends.
void run_chapter(Shared& shared, unsigned slot, Mirror& files, const Chapter& chapter, const Files& handed_in,
                 GradedSubmission& graded) {
  const Workspace& mirror = files.workspace();
  const Tree tree = files.tree(chapter);
  const std::vector<Backend>& backends = shared.course.backends.at(chapter.number);
  const auto build = [&](const worker::WorkerJob& job) { return shared.workshop.build(slot, {job}).at(job.name); };
  const auto build_chapter = [&](bool with_bodies) {
    worker::WorkerJob job = whole_job(mirror, chapter, tree, backends.front());
    if (!with_bodies) job.name = kTried + job.name;
    return build(job);
  };
  if (files.compose(chapter, handed_in, build_chapter, graded.notes)) {
    for (const Backend backend : backends) {
      worker::WorkerJob job = whole_job(mirror, chapter, files.with_headers(chapter), backend);
      job.name = kBooksWithHeaders + job.name;
      build(job);
    }
  }
  const auto request_on = [&](Backend backend) {
    RunRequest request = request_for(shared, slot, backend);
    request.seconds = shared.seconds.at(chapter.number);
    request.token = files.token();
    request.whole_stands_in = false;
    request.grafts = true;
    return request;
  };
  GradedSubmission whole;
  if (passes_whole(shared, mirror, chapter, tree, request_on, whole)) return take_over(whole, graded);
  for (const Backend backend : backends) {
    RunRequest request = request_on(backend);
    judge::Plan plan = make_plan(mirror, chapter, tree, request);
    if (const std::set<std::string> grafts = grafts_of(plan); !grafts.empty()) {
      request.stubs = stubs_of(shared, slot, chapter, request, grafts);
      plan = make_plan(mirror, chapter, tree, request);
    }
    const judge::Built built = build_plans(mirror, {plan}, request.build);
    GradedSubmission found;
    run_tests(shared, mirror, plan, built, request, found);
    judge_callers_on_whole(shared, mirror, plan, built, request, found);
    take_over(found, graded);
  }
}

/// The worst result, or the reason why no test ran; empty if all tests passed.
std::string what_failed(const ChapterRun& run) {
  if (run.none_failed() && run.count(Result::passed) > 0) return "";
  const auto worst = std::ranges::max_element(run.tests, {}, &Verdict::result);
  if (worst == run.tests.end()) return "no test ran";
  return fmt::format("\"{}\": {}\n{}", worst->test, name(worst->result), worst->message);
}

}  // namespace

GradedSubmission grade_one(Shared& shared, unsigned slot, const HandedIn& handed_in) {
  const Course& course = shared.course;
  const auto start = std::chrono::steady_clock::now();
  GradedSubmission graded;
  graded.notes = handed_in.notes;
  shared.workshop.clear(slot);
  Mirror mirror(course, shared.workshop.mirror(slot), handed_in.files);
  for (const Chapter& chapter : course.chapters) {
    const auto run = [&](GradedSubmission& into) { run_chapter(shared, slot, mirror, chapter, handed_in.files, into); };
    const bool touched = std::ranges::any_of(handed_in.files, [&](const auto& file) {
      return is_of(chapter, file.first) && file.second != course.pristine.at(file.first);
    });
    if (touched) {
      run(graded);
      continue;
    }
    const std::lock_guard lock(shared.untouched_mutex);
    GradedSubmission found;
    if (!shared.untouched.contains(chapter.number)) run(found);
    take_over(shared.untouched.try_emplace(chapter.number, std::move(found)).first->second, graded);
  }
  shared.workshop.clear(slot);
  graded.items = give_points(course.assignment, course.workspace.book, graded.tests);
  graded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return graded;
}

void learn_solutions(Shared& shared) {
  const Course& course = shared.course;
  if (!course.workspace.toolchain.compiler_id.starts_with("GNU"))
    judge::fail_environment("grading needs g++; this book is built by {}", course.workspace.toolchain.compiler_id);
  for (const Chapter& chapter : course.chapters) {
    const Tree tree{"book", solutions_tree(course.workspace, chapter).folder};
    for (const Backend backend : course.backends.at(chapter.number)) {
      worker::WorkerJob job = whole_job(course.workspace, chapter, tree, backend);
      job.name = kBooks + job.name;
      shared.workshop.build(0, {job});
    }
  }
  shared.workshop.clear(0);
}

void prove_solutions(Shared& shared) {
  const Course& course = shared.course;
  const Workspace& workspace = course.workspace;
  constexpr double least = 15, times_the_solution = 10;
  for (const Chapter& chapter : course.chapters) {
    std::map<std::string, double> taken;
    for (const Backend backend : course.backends.at(chapter.number)) {
      workspace.progress(fmt::format("chapter {}: the book's solution on {}", chapter.number, text(backend)));
      RunRequest request = request_for(shared, 0, backend);
      if (course.options.total_time > 0) request.seconds[judge::kWhole] = course.options.total_time;
      const Chapter& all = *workspace.book.find(chapter.number);  // including the exercises that are not graded
      // Treated as a submission: compiled and checked in the same way.
      const Tree tree{"submission", solutions_tree(workspace, all).folder};
      const judge::Plan plan = make_plan(workspace, all, tree, request);
      const judge::Built built = build_plans(workspace, {plan}, request.build);
      const ChapterRun run = run_plan(workspace, plan, built, request);
      for (const Verdict& verdict : run.tests) {
        if (verdict.unavailable) shared.cannot_run.insert(key_of(run, verdict));
        taken[verdict.exercise] += verdict.seconds;
      }
      workspace.progress("");
      if (const std::string why = what_failed(run); !why.empty())
        judge::fail_environment(
            "the book's own solution of chapter {} does not pass on {} under the conditions of grading, with {}: {}",
            chapter.number, text(backend), course.verified_on.back(), why);
    }
    std::map<std::string, double>& seconds = shared.seconds[chapter.number];
    double total = seconds[judge::kWhole] = std::max(least, times_the_solution * taken[judge::kWhole]);
    for (const book::Exercise& exercise : chapter.exercises)
      total += seconds[exercise.id] = std::max(least, times_the_solution * taken[exercise.id]);
    for (auto& [group, share] : seconds)
      if (course.options.total_time > 0) share *= course.options.total_time / total;
  }
}

}  // namespace workbook::grading
