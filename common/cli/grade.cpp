// grade: submissions in, points and feedback out. Each is compiled and run in isolation, on a copy of the book that
// holds nothing of it but the files that the assignment lets a student edit.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"
#include "common/cli/verbs.hpp"
#include "common/grading/isolation.hpp"
#include "common/grading/release.hpp"
#include "common/grading/report.hpp"
#include "common/grading/screen.hpp"
#include "common/grading/submission.hpp"
#include "common/grading/summary.hpp"
#include "common/grading/text.hpp"
#include "common/judge/run.hpp"
#include "common/worker/command.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using grading::Assignment;
using grading::GradedItem;
using grading::GradedSubmission;
using grading::GradedTest;
using grading::Submission;
using judge::ChapterRun, judge::Result, judge::RunRequest, judge::Tree, judge::Verdict;
using nlohmann::json;

/// What all submissions are graded with.
struct Course {
  const Session& session;
  const GradeOptions& options;
  Assignment assignment;
  std::vector<Chapter> chapters;                 ///< the open ones, with the assignment's exercises alone
  std::map<std::string, std::string> pristine;   ///< "chapters/02_…/x.cpp" -> as it was handed out
  std::map<int, std::vector<Backend>> backends;  ///< by chapter
  std::map<int, fs::path> hidden;                ///< hidden test program by chapter
  std::vector<std::string> verified_on;
  std::string key;  ///< hash of the book, the assignment, the hidden tests and the options
};

/// What the tests say of chapters that nobody has touched: found out once, however many hand them in so.
class Untouched {
 public:
  /// `found` adds the chapter's tests and notes to an empty submission.
  void add(int chapter, GradedSubmission& graded, const std::function<void(GradedSubmission&)>& found) {
    const std::lock_guard lock(mutex_);
    const auto [known, is_new] = known_.try_emplace(chapter);
    if (is_new) {
      try {
        found(known->second);
      } catch (...) {
        known_.erase(known);
        throw;
      }
    }
    graded.tests.insert(graded.tests.end(), known->second.tests.begin(), known->second.tests.end());
    graded.notes.insert(graded.notes.end(), known->second.notes.begin(), known->second.notes.end());
  }

 private:
  std::mutex mutex_;
  std::map<int, GradedSubmission> known_;  ///< by chapter
};

std::string hidden_program(const Chapter& chapter) {
  return "hidden_" + chapter.name();
}

bool has_hidden(const GradeOptions& options, const Chapter& chapter) {
  return !options.hidden.empty() && fs::is_directory(fs::path(options.hidden) / chapter.name());
}

/// Everything that a result depends on but the submission.
std::string course_key(const Session& session, const GradeOptions& options, const Assignment& assignment,
                       const std::vector<Chapter>& chapters) {
  std::string all = grading::to_toml(assignment, session.book, /*for_students=*/false) + session.toolchain.compiler_id +
                    fmt::format("{} {} {} {}", options.backend, options.unsafe, options.time_limit, options.total_time);
  std::vector<fs::path> folders{session.book.root / "common", session.book.root / "tests" / "support"};
  for (const Chapter& chapter : chapters) {
    folders.push_back(session.book.root / "tests" / chapter.name());
    folders.push_back(session.book.root / "solutions" / chapter.name());
    for (const fs::path& used : session.book.used(chapter)) folders.push_back(used);
    if (has_hidden(options, chapter)) folders.push_back(fs::path(options.hidden) / chapter.name());
  }
  std::vector<std::string> hashes;
  for (const fs::path& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file() || entry.path().filename().string().starts_with(".")) continue;
      hashes.push_back(entry.path().lexically_relative(folder).string() + " " +
                       book::hash(book::read_file(entry.path())));
    }
  }
  std::sort(hashes.begin(), hashes.end());
  for (const std::string& hash : hashes) all += hash + "\n";
  return book::hash(all);
}

/// The chapter with just the exercises that are graded.
Chapter graded_part(const Chapter& chapter, const Assignment& assignment) {
  Chapter part = chapter;
  std::erase_if(part.exercises, [&](const book::Exercise& exercise) { return !assignment.is_open(exercise.id); });
  return part;
}

std::string gpu_name() {
  if (worker::find_program("nvidia-smi").empty()) return "a GPU";
  std::string name = worker::run_command({"nvidia-smi", "--query-gpu=name", "--format=csv,noheader"}).output;
  return "a GPU (" + name.substr(0, name.find('\n')) + ")";
}

std::string backend_text(const Session& session, Backend backend) {
  if (backend == Backend::cuda) return gpu_name();
  return fmt::format("{} ({})", text(backend), session.toolchain.compiler_id);
}

/// On what a chapter is graded: all of its backends but the GPU, which has to be asked for.
std::vector<Backend> graded_backends(const Session& session, const Chapter& chapter, bool on_gpu) {
  std::vector<Backend> backends;
  for (const Backend backend : chapter.backends) {
    if (backend == Backend::cuda && !on_gpu) continue;
    if (!session.toolchain.can_build(backend) || (backend == Backend::cuda && !worker::gpu_present())) {
      const std::string why = session.toolchain.can_build(backend) ? "this machine has no GPU that CUDA can see"
                                                                   : session.toolchain.why_not(backend);
      throw EnvironmentError(fmt::format(
          "chapter {} is to be graded on \"{}\", which cannot run here: {}{}", chapter.number, name(backend), why,
          backend == Backend::cuda ? "; without --backend cuda it is graded on the simulator" : ""));
    }
    if (backend == Backend::sim && !session.toolchain.counts) {
      throw EnvironmentError(fmt::format("chapter {}'s tests count on the simulator, and this compiler's does not: {}",
                                         chapter.number, session.toolchain.simulator));
    }
    backends.push_back(backend);
  }
  return backends;
}

/// Builds what grading needs: the book's test programs and servers, the isolation, the hidden tests.
void prepare(Course& course) {
  const Session& session = course.session;
  std::vector<std::string> targets{"workbook_isolate"};
  for (const Chapter& chapter : course.chapters) {
    const std::vector<std::string> more = test_targets(session, chapter);
    targets.insert(targets.end(), more.begin(), more.end());
  }
  bool any_hidden = false;
  for (const Chapter& chapter : course.chapters) {
    if (!has_hidden(course.options, chapter)) continue;
    any_hidden = true;
    targets.push_back(hidden_program(chapter));
    course.hidden[chapter.number] = session.toolchain.build_folder / "bin" / hidden_program(chapter);
  }
  if (any_hidden) {
    session.progress("configuring the hidden tests");
    const worker::CommandResult configured = worker::run_command(
        {session.toolchain.cmake, "-DWORKBOOK_HIDDEN_TESTS=" + fs::canonical(course.options.hidden).string(),
         session.toolchain.build_folder.string()});
    if (configured.exit_code != 0) {
      throw std::runtime_error("the hidden tests could not be configured:\n" + configured.output);
    }
  }
  session.progress("building what grading needs");
  std::sort(targets.begin(), targets.end());
  targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  worker::build_targets(session.toolchain, targets);
  session.progress("");
}

/// A mirror of the book in a folder that only we can read: the pristine chapters with the submission's files over them.
Session mirror_book(const Course& course, const fs::path& folder, const std::map<std::string, std::string>& handed_in) {
  const Session& session = course.session;
  fs::remove_all(folder / "chapters");
  for (const auto& [name, text] : course.pristine) book::write_file(folder / name, text);
  for (const auto& [name, text] : handed_in) book::write_file(folder / name, text);
  for (const char* name : {"solutions", "tests", "common"}) {
    if (!fs::exists(folder / name)) fs::create_directory_symlink(session.book.root / name, folder / name);
  }
  fs::create_directories(folder / "build");
  if (!fs::exists(folder / "build" / "bin")) {
    fs::create_directory_symlink(session.toolchain.build_folder / "bin", folder / "build" / "bin");
  }
  Session mirror = session;
  mirror.book.root = folder;
  mirror.toolchain.build_folder = folder / "build";
  mirror.toolchain.root = folder;
  mirror.json = mirror.terminal = false;
  mirror.on_progress = {};
  return mirror;
}

/// What the tests of one name came to, on all backends.
struct Named {
  bool passed = false, all_good = true;
  std::string worst = "passed";
  void add(const std::string& result) {
    passed = passed || result == "passed";
    all_good = all_good && (result == "passed" || result == "skipped");
    if (grading::severity(result) > grading::severity(worst)) worst = result;
  }
  /// Skipped alone is no pass: what is skipped is said by the worker's side.
  bool good() const { return passed && all_good; }
};

/// Points, from the tests. `expected`: the public tests that must be among them.
GradedItem judge(GradedItem item, const std::vector<GradedTest>& tests, const std::vector<std::string>& expected) {
  std::map<std::pair<bool, std::string>, Named> named;
  for (const std::string& name : expected) named[{false, name}];
  for (const GradedTest& test : tests) {
    if (test.chapter != item.chapter || test.exercise != (item.kind == "chapter" ? "whole" : item.id)) continue;
    named[{test.hidden, test.name}].add(test.result);
    item.has_hidden = item.has_hidden || test.hidden;
  }
  bool all = !named.empty();
  item.public_passed = true;
  item.result = "passed";
  for (const auto& [key, name] : named) {
    if (name.good()) continue;
    all = false;
    if (!key.first) item.public_passed = false;
    // A test that never ran: its program ended early.
    const std::string worst = name.worst == "passed" ? "crashed" : name.worst;
    if (grading::severity(worst) > grading::severity(item.result)) item.result = worst;
  }
  item.points = all ? item.max_points : 0;
  return item;
}

void judge_all(const Course& course, GradedSubmission& graded) {
  const Assignment& assignment = course.assignment;
  // Tests with points of their own no longer belong to their exercise.
  for (std::size_t i = 0; i < assignment.bars.size(); ++i) {
    for (GradedTest& test : graded.tests) {
      if (test.chapter == assignment.bars[i].chapter && test.name == assignment.bars[i].test) {
        test.exercise = fmt::format("bar {}", i + 1);
      }
    }
  }
  const auto is_bar = [&](int chapter, const std::string& test) {
    return std::any_of(assignment.bars.begin(), assignment.bars.end(),
                       [&](const Assignment::Bar& bar) { return bar.chapter == chapter && bar.test == test; });
  };
  const auto without_bars = [&](int chapter, std::vector<std::string> tests) {
    std::erase_if(tests, [&](const std::string& test) { return is_bar(chapter, test); });
    return tests;
  };
  for (const Assignment::Exercise& exercise : assignment.exercises) {
    const book::Exercise& known = course.session.book.exercise(exercise.id);
    const int chapter = course.session.book.chapter(exercise.id.substr(0, exercise.id.find('.'))).number;
    GradedItem item;
    item.kind = "exercise";
    item.id = exercise.id;
    item.title = known.title;
    item.chapter = chapter;
    item.max_points = exercise.points;
    graded.items.push_back(judge(item, graded.tests, without_bars(chapter, known.tests)));
  }
  for (const Assignment::Whole& whole : assignment.chapters) {
    const Chapter& chapter = *course.session.book.find(whole.chapter);
    GradedItem item;
    item.kind = "chapter";
    item.id = fmt::format("chapter {}", chapter.number);
    item.title = chapter.title + ", everything in it";
    item.chapter = chapter.number;
    item.max_points = whole.points;
    item = judge(item, graded.tests, without_bars(chapter.number, chapter.whole_tests));
    // Points for a chapter in which everything works.
    for (const GradedItem& exercise : graded.items) {
      if (exercise.kind != "exercise" || exercise.chapter != chapter.number || exercise.result == "passed") continue;
      item.points = 0;
      item.public_passed = item.public_passed && exercise.public_passed;
      item.has_hidden = item.has_hidden || exercise.has_hidden;
      if (grading::severity(exercise.result) > grading::severity(item.result)) item.result = exercise.result;
    }
    graded.items.push_back(item);
  }
  for (std::size_t i = 0; i < assignment.bars.size(); ++i) {
    const Assignment::Bar& bar = assignment.bars[i];
    GradedItem item;
    item.kind = "bar";
    item.id = fmt::format("bar {}", i + 1);
    item.title = bar.test;
    item.chapter = bar.chapter;
    item.max_points = bar.points;
    // A hidden bar is in no list; that it ran is to be seen in its result.
    const Chapter& chapter = *course.session.book.find(bar.chapter);
    const bool is_public =
        std::any_of(
            chapter.exercises.begin(), chapter.exercises.end(),
            [&](const auto& e) { return std::find(e.tests.begin(), e.tests.end(), bar.test) != e.tests.end(); }) ||
        std::find(chapter.whole_tests.begin(), chapter.whole_tests.end(), bar.test) != chapter.whole_tests.end();
    item = judge(item, graded.tests, is_public ? std::vector{bar.test} : std::vector<std::string>{});
    if (item.points == 0 && item.result == "passed") item.result = "crashed";  // it never ran
    graded.items.push_back(item);
  }
}

/// Takes over what a test program said about the exercises that are graded.
void take_tests(const Course& course, const Chapter& chapter, const ChapterRun& run, bool run_hidden,
                GradedSubmission& graded) {
  // An exercise for which nothing compiled says what the whole chapter's compiler said: the student's own lines only.
  std::string whole_log;
  for (const Verdict& test : run.tests) {
    if (test.exercise == "whole" && test.result == Result::not_compiled) whole_log = test.message;
  }
  for (const Verdict& test : run.tests) {
    if (test.exercise != "whole" && !course.assignment.is_open(test.exercise)) continue;
    GradedTest taken = grading::graded_test(test, chapter.number);
    if (test.result == Result::not_compiled && !whole_log.empty()) taken.message = whole_log;
    graded.tests.push_back(std::move(taken));
  }
  // Which public tests are missing then is known; of the hidden ones it is not.
  if (run_hidden && !run.finished) {
    for (const book::Exercise& exercise : chapter.exercises) {
      GradedTest missing;
      missing.name = "the hidden tests came to an end";
      missing.exercise = exercise.id;
      missing.chapter = chapter.number;
      missing.backend = name(run.backend);
      missing.hidden = true;
      missing.result = "timed out";
      graded.tests.push_back(missing);
    }
  }
  for (const std::string& note : run.notes) {
    if (std::find(graded.notes.begin(), graded.notes.end(), note) == graded.notes.end()) graded.notes.push_back(note);
  }
}

/// What in the source has no place in an answer, as results of its chapter; true if there is any.
bool reject(const Course& course, const Chapter& chapter, const std::map<std::string, std::string>& handed_in,
            GradedSubmission& graded) {
  std::string message;
  std::string file;
  int line = 0;
  for (const auto& [name, text] : handed_in) {
    if (!name.starts_with("chapters/" + chapter.name() + "/")) continue;
    for (const grading::Refusal& refusal : grading::screen_source(text, course.pristine.at(name))) {
      if (message.empty()) {
        file = name;
        line = refusal.line;
      }
      message += fmt::format("{}:{}: {} has no place in an answer\n", name, refusal.line, refusal.what);
    }
  }
  if (message.empty()) return false;
  const auto add = [&](const std::string& exercise) {
    GradedTest test;
    test.name = "the source can be graded";
    test.exercise = exercise;
    test.chapter = chapter.number;
    test.backend = name(course.backends.at(chapter.number).front());
    test.result = "rejected";
    test.message = message;
    test.file = file;
    test.line = line;
    graded.tests.push_back(test);
  };
  for (const book::Exercise& exercise : chapter.exercises) add(exercise.id);
  add("whole");
  for (std::size_t i = 0; i < course.assignment.bars.size(); ++i) {
    if (course.assignment.bars[i].chapter == chapter.number) add(fmt::format("bar {}", i + 1));
  }
  return true;
}

GradedSubmission grade_one(const Course& course, grading::Workshop& workshop, unsigned slot, Untouched& untouched,
                           const grading::HandedIn& handed_in) {
  const auto start = std::chrono::steady_clock::now();
  GradedSubmission graded;
  graded.notes = handed_in.notes;
  workshop.clear(slot);
  const Session mirror = mirror_book(course, workshop.mirror(slot), handed_in.files);
  for (const Chapter& chapter : course.chapters) {
    if (reject(course, chapter, handed_in.files, graded)) continue;
    const auto run_all = [&](GradedSubmission& into) {
      RunRequest request;
      request.time_limit = course.options.time_limit;
      request.total_time = course.options.total_time;
      request.gpu_grafts = true;
      request.build = [&](const std::vector<worker::WorkerJob>& jobs) { return workshop.build(slot, jobs); };
      const Tree tree{"submission", mirror.book.root / "chapters" / chapter.name()};
      for (const Backend backend : course.backends.at(chapter.number)) {
        request.backend = backend;
        request.worker_prefix = workshop.worker_prefix(slot, backend);
        request.program.clear();
        request.hidden = false;
        take_tests(course, chapter, run_tests(mirror, chapter, tree, request), /*hidden=*/false, into);
        const auto hidden = course.hidden.find(chapter.number);
        if (hidden == course.hidden.end()) continue;
        request.program = hidden->second;
        request.hidden = true;
        take_tests(course, chapter, run_tests(mirror, chapter, tree, request), /*hidden=*/true, into);
      }
    };
    const bool touched = std::any_of(handed_in.files.begin(), handed_in.files.end(), [&](const auto& file) {
      return file.first.starts_with("chapters/" + chapter.name() + "/") &&
             file.second != course.pristine.at(file.first);
    });
    if (touched) {
      run_all(graded);
    } else {
      untouched.add(chapter.number, graded, run_all);
    }
  }
  workshop.clear(slot);
  judge_all(course, graded);
  graded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return graded;
}

/// A GPU's driver may refuse to work for another user or in the filter: the book's own solution has to pass there
/// before anybody's is graded. EnvironmentError with what does not.
void prove_gpu(const Course& course, grading::Workshop& workshop) {
  for (const Chapter& chapter : course.chapters) {
    const std::vector<Backend>& backends = course.backends.at(chapter.number);
    if (std::ranges::count(backends, Backend::cuda) == 0) continue;
    course.session.progress(fmt::format("chapter {}: the book's solution on the GPU", chapter.number));
    RunRequest request;
    request.backend = Backend::cuda;
    request.time_limit = course.options.time_limit;
    request.total_time = course.options.total_time;
    request.build = [&](const std::vector<worker::WorkerJob>& jobs) { return workshop.build(0, jobs); };
    request.worker_prefix = workshop.worker_prefix(0, Backend::cuda);
    const Chapter& all = *course.session.book.find(chapter.number);  // with the exercises that are not graded
    const ChapterRun run = run_tests(course.session, all, solutions_tree(course.session, all), request);
    course.session.progress("");
    if (run.none_failed() && run.count(Result::passed) > 0) continue;
    // What failed, or else why nothing could run.
    std::string why;
    for (const Verdict& test : run.tests) {
      if (test.result == Result::passed || (test.result == Result::skipped && !why.empty())) continue;
      why = fmt::format("\"{}\": {}\n{}", test.test, name(test.result), test.message);
      if (test.result != Result::skipped) break;
    }
    if (why.empty()) why = "no test ran";
    throw EnvironmentError(fmt::format(
        "the book's own solution of chapter {} does not pass on this GPU as submissions would run there: {}",
        chapter.number, why));
  }
}

std::string dump(const json& document) {
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

/// A submission's files; the record comes last, since it says that all is there.
void write_report(const fs::path& folder, const GradedSubmission& graded) {
  book::write_file(folder / "results.json", dump(grading::gradescope_results(graded)));
  book::write_file(folder / "junit.xml", grading::junit_xml(graded));
  book::write_file(folder / "feedback.md", grading::feedback_page(graded));
  if (graded.problem.empty()) book::write_file(folder / "record.json", dump(grading::to_json(graded)));
}

/// The record of an earlier run, if it is of the same submission, graded in the same way.
std::optional<GradedSubmission> read_record(const fs::path& folder, const std::string& key) {
  const fs::path path = folder / "record.json";
  if (!fs::is_regular_file(path)) return {};
  try {
    GradedSubmission graded = grading::submission_from_json(json::parse(book::read_file(path)));
    if (graded.key == key) return graded;
  } catch (const json::exception&) {
  }
  return {};
}

std::string submission_key(const Course& course, const grading::HandedIn& handed_in) {
  std::string all = course.key;
  for (const auto& [name, text] : handed_in.files) all += name + '\0' + text + '\0';
  for (const std::string& note : handed_in.notes) all += note + '\n';
  return book::hash(all);
}

/// "2/8" -> the second of eight parts.
std::pair<std::size_t, std::size_t> shard(const std::string& text) {
  if (text.empty()) return {1, 1};
  std::size_t part = 0, of = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%zu/%zu%c", &part, &of, &rest) != 2 || part < 1 || part > of) {
    fail_input("--shard {}: not a part of a class; allowed: 1/4 to 4/4, for any number of parts", text);
  }
  return {part, of};
}

/// Files that no submission may read: for the probe.
std::vector<fs::path> protected_paths(const Course& course, const std::vector<Submission>& submissions) {
  std::vector<fs::path> paths;
  for (const Chapter& chapter : course.chapters) {
    for (const std::string& file : chapter.files) paths.push_back(course.session.book.solution(chapter, file));
    if (!has_hidden(course.options, chapter)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(course.options.hidden) / chapter.name())) {
      if (entry.is_regular_file()) paths.push_back(fs::canonical(entry.path()));
    }
    paths.push_back(course.hidden.at(chapter.number));
  }
  for (std::size_t i = 0; i < std::min<std::size_t>(submissions.size(), 100); ++i) {
    paths.push_back(fs::absolute(submissions[i].path));
  }
  return paths;
}

void print_line(const Session& session, const GradedSubmission& graded, bool known, std::size_t at, std::size_t of) {
  std::string items;
  for (const GradedItem& item : graded.items) items += fmt::format("  {}: {}", item.id, item.result);
  const std::string points = !graded.problem.empty() ? session.colored("not graded: " + graded.problem, "red")
                                                     : fmt::format("{:>5} of {}", grading::points_text(graded.points()),
                                                                   grading::points_text(graded.max_points()));
  fmt::print("[{}/{}] {:<24} {}{}{}\n", at, of, graded.student, points, items, known ? "  (graded before)" : "");
  std::fflush(stdout);
}

}  // namespace

int grade(const Session& session, const GradeOptions& options) {
  const fs::path assignment_path =
      options.assignment.empty() ? session.book.root / "assignment.toml" : fs::path(options.assignment);
  if (!fs::is_regular_file(assignment_path)) {
    fail_input("{}: there is no such assignment; allowed: --assignment FILE, as `./workbook release` writes it",
               assignment_path.string());
  }
  if (!options.hidden.empty() && !fs::is_directory(options.hidden)) {
    fail_input("--hidden {}: there is no such folder", options.hidden);
  }
  if (options.submissions.empty() && !options.prepare) {
    fail_input("grade needs submissions; allowed: folders, archives (.zip, .tar.gz, …) or single files");
  }
  if (!options.results.empty() && options.submissions.size() != 1) {
    fail_input("--results is for one submission; allowed: --out FOLDER for several");
  }
  Course course{session, options, grading::load_assignment(assignment_path, session.book), {}, {}, {}, {}, {}, ""};
  std::set<Backend> backends;
  for (const int number : course.assignment.open_chapters()) {
    const Chapter& chapter = *session.book.find(number);
    if (!session.book.has_solutions(chapter)) {
      fail_input("there is no solution of chapter {} here: grading needs the whole book, not a release", number);
    }
    course.chapters.push_back(graded_part(chapter, course.assignment));
    course.backends[number] = graded_backends(session, chapter, options.backend == name(Backend::cuda));
    if (course.backends[number].empty())
      fail_input("--backend {}: chapter {} does not run on it", options.backend, number);
    backends.insert(course.backends[number].begin(), course.backends[number].end());
    for (const book::MarkedFile& solution : book::read_solution(session.book, chapter)) {
      const std::string file = solution.name.substr(solution.name.find('/', std::string("solutions/").size()) + 1);
      course.pristine["chapters/" + chapter.name() + "/" + file] = grading::released_text(solution, course.assignment);
    }
  }
  for (const Backend backend : backends) course.verified_on.push_back(backend_text(session, backend));
  const auto [part, parts] = shard(options.shard);
  std::vector<Submission> submissions = grading::name_submissions(options.submissions);
  prepare(course);
  if (options.prepare) {
    fmt::print("everything that grading needs is built\n");
    return kDone;
  }
  course.key = course_key(session, options, course.assignment, course.chapters);

  std::vector<Submission> mine;
  for (std::size_t i = 0; i < submissions.size(); ++i) {
    if (i % parts == part - 1) mine.push_back(submissions[i]);
  }
  const grading::IsolationLimits limits{.build_seconds = options.build_time};
  grading::Isolation isolation = grading::no_isolation();
  if (!options.unsafe) {
    try {
      isolation = grading::prove_isolation(session.toolchain.build_folder / "bin" / "workbook_isolate",
                                           protected_paths(course, submissions), limits);
    } catch (const grading::NoIsolation& error) {
      throw EnvironmentError(error.what());
    }
  }
  const unsigned slots = unsigned(std::clamp<std::size_t>(std::min<std::size_t>(options.jobs, mine.size()), 1, 40));
  // Results lie where only we can write; a worker's user could read them otherwise. The folder's mode is our umask's.
  const fs::path out = fs::absolute(options.out);
  if (options.results.empty()) fs::create_directories(out);
  grading::Workshop workshop(session.toolchain, session.book.root, isolation, limits, slots);
  prove_gpu(course, workshop);

  Untouched untouched;
  std::vector<GradedSubmission> all(mine.size());
  std::vector<bool> known(mine.size(), false);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> trouble{false};
  std::mutex mutex;
  std::size_t done = 0;
  const auto work = [&](unsigned slot) {
    while (true) {
      const std::size_t i = next++;
      if (i >= mine.size()) return;
      GradedSubmission& graded = all[i];
      try {
        const grading::HandedIn handed_in = grading::read_submission(mine[i], course.assignment.files);
        const std::string key = submission_key(course, handed_in);
        const auto record = options.again || !options.results.empty() ? std::optional<GradedSubmission>()
                                                                      : read_record(out / mine[i].student, key);
        if (record) {
          graded = *record;
          const std::lock_guard lock(mutex);
          known[i] = true;
        } else {
          graded = grade_one(course, workshop, slot, untouched, handed_in);
          graded.key = key;
        }
      } catch (const std::exception& error) {
        // Not the student's fault: reported as such, and graded again next time.
        trouble = true;
        graded = GradedSubmission{};
        graded.problem = error.what();
      }
      graded.student = mine[i].student;
      graded.assignment = course.assignment.title;
      graded.verified_on = course.verified_on;
      graded.isolation = isolation.record;
      graded.hidden_results = course.assignment.hidden_results;
      graded.leaderboard = course.assignment.leaderboard;
      try {
        if (!options.results.empty()) {
          book::write_file(options.results, dump(grading::gradescope_results(graded)));
        } else if (!known[i]) {
          write_report(out / mine[i].student, graded);
        }
      } catch (const std::exception& error) {
        trouble = true;
        graded.problem = error.what();
      }
      const std::lock_guard lock(mutex);
      ++done;
      if (!session.json) print_line(session, graded, known[i], done, mine.size());
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned slot = 0; slot < slots; ++slot) threads.emplace_back(work, slot);
  }

  if (options.results.empty()) {
    // The class: all whose records are there, so that the last of several shards has everyone.
    std::map<std::string, GradedSubmission> by_student;
    for (const Submission& submission : submissions) {
      const fs::path path = out / submission.student / "record.json";
      if (!fs::is_regular_file(path)) continue;
      try {
        by_student[submission.student] = grading::submission_from_json(json::parse(book::read_file(path)));
      } catch (const json::exception&) {
      }
    }
    for (const GradedSubmission& graded : all) by_student[graded.student] = graded;
    std::vector<GradedSubmission> whole_class;
    for (const auto& [student, graded] : by_student) whole_class.push_back(graded);
    book::write_file(out / "class.csv", grading::class_table(whole_class));
    book::write_file(out / "class.md", grading::class_summary(whole_class));
    if (!worker::find_program("gnuplot").empty()) {
      book::write_file(out / "class.gnuplot", grading::class_plot(whole_class, (out / "class.svg").string()));
      worker::run_command({"gnuplot", (out / "class.gnuplot").string()});
    }
    if (!session.json) {
      fmt::print("written: {}, with a folder for each submission; class.csv and class.md have {} of {}\n", out.string(),
                 whole_class.size(), submissions.size());
    }
  }
  if (session.json) {
    json documents = json::array();
    for (const GradedSubmission& graded : all) documents.push_back(grading::to_json(graded));
    print_json({{"submissions", documents}, {"isolation", isolation.record}, {"verified_on", course.verified_on}});
  } else if (!isolation.on) {
    fmt::print("nothing was isolated (--unsafe): the submissions' code ran with all of your rights\n");
  }
  return trouble ? kEnvironment : kDone;
}

}  // namespace workbook::cli
