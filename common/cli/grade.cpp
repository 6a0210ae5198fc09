// grade: submissions in, points and feedback out. How is common/grading's.
#include <cstdio>

#include "common/attention/error.hpp"
#include "common/book/foreign_text.hpp"
#include "common/cli/verbs.hpp"
#include "common/grading/class_run.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using grading::ClassOptions, grading::GradedClass, grading::GradedSubmission;
using nlohmann::json;

/// What is given as it is, and words that are looked at first.
struct GradeOptions : ClassOptions {
  std::string assignment_file;  ///< empty: the book's folder has it
  std::string hidden_folder;    ///< NN_name/test_*.cpp
  std::string out_folder = "graded";
  std::string results_file;
  std::string backend;   ///< "cuda": on a GPU too
  std::string shard;     ///< "2/8": the second of eight parts of the submissions
  bool prepare = false;  ///< only build what grading needs
};

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

ClassOptions class_options(const Session& session, const GradeOptions& options) {
  ClassOptions chosen = options;
  chosen.assignment =
      options.assignment_file.empty() ? session.book.root / "assignment.toml" : fs::path(options.assignment_file);
  if (!fs::is_regular_file(chosen.assignment)) {
    fail_input("{}: there is no such assignment; allowed: --assignment FILE, as `./workbook release` writes it",
               chosen.assignment.string());
  }
  if (!options.hidden_folder.empty() && !fs::is_directory(options.hidden_folder)) {
    fail_input("--hidden {}: there is no such folder", options.hidden_folder);
  }
  if (options.submissions.empty() && !options.prepare) {
    fail_input("grade needs submissions; allowed: folders, archives (.zip, .tar.gz, …) or single files");
  }
  if (!options.results_file.empty() && options.submissions.size() != 1) {
    fail_input("--results is for one submission; allowed: --out FOLDER for several");
  }
  chosen.hidden = options.hidden_folder;
  chosen.on_gpu = options.backend == name(Backend::cuda);
  chosen.out = fs::absolute(options.out_folder);
  chosen.results = options.results_file;
  std::tie(chosen.part, chosen.parts) = shard(options.shard);
  return chosen;
}

void print_line(const Session& session, const grading::Graded& graded) {
  const GradedSubmission& submission = graded.submission;
  std::string items;
  for (const grading::GradedItem& item : submission.items) {
    items += fmt::format("  {}: {}", item.id, judge::name(item.result));
  }
  const std::string points = !submission.problem.empty()
                                 ? session.colored("not graded: " + submission.problem, "red")
                                 : fmt::format("{:>5} of {}", book::points_text(submission.points()),
                                               book::points_text(submission.max_points()));
  fmt::print("[{}/{}] {:<24} {}{}{}\n", graded.at, graded.count, submission.student, points, items,
             graded.known ? "  (graded before)" : "");
  std::fflush(stdout);
}

void print_class(const Session& session, const ClassOptions& options, const GradedClass& graded) {
  if (session.json) {
    json documents = json::array();
    for (const GradedSubmission& submission : graded.submissions) documents.push_back(grading::to_json(submission));
    print_json({{"submissions", documents}, {"isolation", graded.isolation}, {"verified_on", graded.verified_on}});
    return;
  }
  if (options.results.empty()) {
    fmt::print("written: {}, with a folder for each submission; class.csv and class.md have {} of {}\n",
               options.out.string(), graded.in_tables, graded.all);
  }
  if (graded.isolation.at("on") == false) {
    fmt::print("nothing was isolated (--unsafe): the submissions' code ran with all of your rights\n");
  }
}

int grade(const Session& session, const GradeOptions& options) {
  const ClassOptions chosen = class_options(session, options);
  if (options.prepare) {
    prepare_grading(session, chosen);
    fmt::print("everything that grading needs is built\n");
    return kDone;
  }
  const GradedClass graded = grade_class(session, chosen, [&](const grading::Graded& submission) {
    if (!session.json) print_line(session, submission);
  });
  print_class(session, chosen, graded);
  return graded.trouble ? kEnvironment : kDone;
}

}  // namespace

Runner declare_grade(Options& options) {
  const auto given = std::make_shared<GradeOptions>();
  options.option("submissions", given->submissions, "Folders, archives or single files");
  options.option("--assignment", given->assignment_file, "The assignment.toml of the release")
      .allow(not_empty("a file name"));
  options.option("--hidden", given->hidden_folder, "A folder with hidden tests: NN_name/test_*.cpp")
      .allow(not_empty("a folder"));
  options.option("--out", given->out_folder, "Where the results go").allow(not_empty("a folder")).show_default();
  options.option("--results", given->results_file, "Write just Gradescope's results.json, for one submission")
      .allow(not_empty("a file name"));
  options.option("--backend", given->backend, "cuda: grade on a GPU too").allow(one_of({"cuda"}, "cuda"));
  options.option("--jobs", given->jobs, "Submissions at a time").allow(whole_number<std::size_t>(1)).show_default();
  options.option("--shard", given->shard, "Grade only a part of the submissions: 2/8")
      .allow(not_empty("a part, such as 2/8"));
  options.option("--time-limit", given->time_limit, "Seconds that one call may take")
      .allow(number(0.1, 86400, "seconds, from 0.1 to 86400"))
      .show_default();
  options
      .option("--total-time", given->total_time,
              "Seconds that a chapter's tests may take together, in place of 20 times what the book's solution takes, "
              "at least 60")
      .allow(number(1, 86400, "seconds, from 1 to 86400"));
  options
      .option(
          "--build-time", given->build_time,
          "Seconds of processor time that compiling one file may take, in place of 3 times what the book's solution "
          "takes, at least 8")
      .allow(number(1, 86400, "seconds, from 1 to 86400"));
  options.flag("--again", given->again, "Also grade what an earlier run has graded");
  options.flag("--unsafe", given->unsafe, "Run submissions without any protection");
  options.flag("--prepare", given->prepare, "Only build what grading needs");
  return [given](Session& session) { return grade(session, *given); };
}

}  // namespace workbook::cli
