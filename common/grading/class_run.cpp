#include "common/grading/class_run.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/book/foreign_text.hpp"
#include "common/grading/grade_one.hpp"
#include "common/grading/isolation.hpp"
#include "common/grading/report.hpp"
#include "common/grading/submission.hpp"
#include "common/grading/summary.hpp"
#include "common/worker/command.hpp"

namespace workbook::grading {
namespace fs = std::filesystem;
namespace {

using book::line_text;
using nlohmann::json;

std::string dump(const json& document) {
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

/// Writes a submission's reports. The record comes last, because it marks them as complete.
void write_reports(const fs::path& folder, const GradedSubmission& graded) {
  book::write_file(folder / "results.json", dump(gradescope_results(graded)));
  book::write_file(folder / "junit.xml", junit_xml(graded));
  book::write_file(folder / "feedback.md", feedback_page(graded));
  if (graded.problem.empty()) book::write_file(folder / "record.json", dump(to_json(graded)));
}

/// The record of an earlier run in a submission's folder; empty if there is no readable one.
std::optional<GradedSubmission> read_record(const fs::path& folder) {
  const fs::path path = folder / "record.json";
  if (!fs::is_regular_file(path)) return {};
  try {
    return submission_from_json(json::parse(book::read_file(path)));
  } catch (const std::exception&) {
    return {};
  }
}

/// A hash of everything on which a submission's result depends.
std::string submission_key(const std::string& course_key, const HandedIn& handed_in) {
  std::string all = course_key;
  for (const auto& [name, text] : handed_in.files) all += name + '\0' + text + '\0';
  for (const std::string& note : handed_in.notes) all += note + '\n';
  return book::hash(all);
}

Isolation isolation_for(const Course& course, const std::vector<Submission>& submissions) {
  if (course.options.unsafe) return {};
  // Submissions must not read the solutions, the hidden tests, or other submissions.
  constexpr std::size_t most_submissions = 100;
  std::vector<fs::path> paths = protected_files(course);
  for (std::size_t i = 0; i < std::min(submissions.size(), most_submissions); ++i)
    paths.push_back(fs::absolute(submissions[i].path));
  return prove_isolation(course.workspace.toolchain.build_folder / "bin" / "workbook_isolate", paths);
}

/// Creates the folder for the results. InputError if no file can be written there.
void require_writable(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error)
    fail_input("--out {}: nothing can be written there ({}); allowed: a folder of your own", folder.string(),
               error.message());
}

/// An exception is not the student's fault. It is reported as a problem, and the submission is graded again next time.
template <class Step>
void guarded(GradedSubmission& graded, const Step& step) {
  try {
    step();
  } catch (const std::exception& error) {
    graded.problem = line_text(error.what());
  }
}

/// Grades a submission and writes its reports. True if the record of an earlier run still applies.
bool grade(Shared& shared, const ClassOptions& options, const std::string& key_of_course, unsigned slot,
           const Submission& submission, GradedSubmission& graded) {
  const Course& course = shared.course;
  const bool writes_records = options.results.empty();
  const fs::path folder = options.out / submission.student;
  bool known = false;
  guarded(graded, [&] {
    const HandedIn handed_in = read_submission(submission, course.assignment.files);
    const std::string key = submission_key(key_of_course, handed_in);
    std::optional<GradedSubmission> record;
    if (writes_records && !options.again) record = read_record(folder);
    known = record && record->key == key;
    graded = known ? *record : grade_one(shared, slot, handed_in);
    graded.key = key;
    if (!known) graded.verified_on = course.verified_on;
  });
  graded.student = submission.student;
  graded.path = line_text(submission.path.string());
  graded.assignment = course.assignment.title;
  graded.isolation = shared.workshop.isolation().record;
  graded.hidden_results = course.assignment.hidden_results;
  graded.leaderboard = course.assignment.leaderboard;
  guarded(graded, [&] {
    if (!writes_records) book::write_file(options.results, dump(gradescope_results(graded)));
    if (writes_records && !known) write_reports(folder, graded);
  });
  return known;
}

/// Writes the class's tables. They contain the submissions of this run and all others with a record, so that the last
/// of several parts lists the whole class. Returns the number of submissions in the tables.
std::size_t write_tables(const fs::path& out, const std::vector<Submission>& submissions,
                         const std::vector<GradedSubmission>& graded) {
  std::vector<GradedSubmission> whole_class = graded;
  for (const Submission& submission : submissions) {
    if (std::ranges::count(graded, submission.student, &GradedSubmission::student) > 0) continue;
    if (const auto record = read_record(out / submission.student)) whole_class.push_back(*record);
  }
  std::ranges::sort(whole_class, {}, &GradedSubmission::student);
  book::write_file(out / "class.csv", class_table(whole_class));
  book::write_file(out / "class.md", class_summary(whole_class));
  if (!worker::find_program("gnuplot").empty()) {
    book::write_file(out / "class.gnuplot", class_plot(whole_class, (out / "class.svg").string()));
    worker::run_command({"gnuplot", (out / "class.gnuplot").string()});
  }
  return whole_class.size();
}

/// Draws the seed of the tests' inputs (grading_seed) unless the environment has one. Returns the variable.
std::string draw_seed() {
  std::random_device device;
  ::setenv("WORKBOOK_SEED", fmt::format("{:08x}", device()).c_str(), /*replace=*/0);
  return fmt::format("inputs of WORKBOOK_SEED={}", std::getenv("WORKBOOK_SEED"));
}

}  // namespace

GradedClass grade_class(const judge::Workspace& workspace, const ClassOptions& options,
                        const std::function<void(const Graded&)>& on_graded) {
  Course course = load_course(workspace, options);
  course.verified_on.push_back(draw_seed());
  const std::vector<Submission> submissions = name_submissions(options.submissions);
  build_course(course);
  std::vector<Submission> mine;
  for (std::size_t i = 0; i < submissions.size(); ++i)
    if (i % options.parts == options.part - 1) mine.push_back(submissions[i]);
  const IsolationLimits limits{.build_seconds = options.build_time, .judge_objects = true};
  const Isolation isolation = isolation_for(course, submissions);
  const unsigned slots = unsigned(std::clamp<std::size_t>(std::min<std::size_t>(options.jobs, mine.size()), 1, 40));
  // The results folder is created before the workshop changes the umask, so that users of workers cannot read the
  // results if our umask denies it.
  if (options.results.empty()) require_writable(options.out);
  Workshop workshop(workspace.toolchain, isolation, limits, slots);
  Shared shared{course, workshop};
  learn_solutions(shared);
  prove_solutions(shared);

  const std::string key = course_key(course);
  GradedClass result;
  result.submissions.resize(mine.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // protects `done` and calls of on_graded
  std::size_t done = 0;
  const auto work = [&](unsigned slot) {
    for (std::size_t i = next++; i < mine.size(); i = next++) {
      GradedSubmission& graded = result.submissions[i];
      const bool known = grade(shared, options, key, slot, mine[i], graded);
      const std::lock_guard lock(mutex);
      result.trouble = result.trouble || !graded.problem.empty();
      on_graded({graded, known, ++done, mine.size()});
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned slot = 0; slot < slots; ++slot) threads.emplace_back(work, slot);
  threads.clear();  // joins the threads
  if (options.results.empty()) result.in_tables = write_tables(options.out, submissions, result.submissions);
  result.all = submissions.size();
  result.isolation = isolation.record;
  result.verified_on = course.verified_on;
  return result;
}

}  // namespace workbook::grading
