// grade: turns submissions into points and feedback. common/grading does the work.
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

/// "2/8" -> the second of eight parts.
std::pair<std::size_t, std::size_t> shard(const std::string& text) {
  if (text.empty()) return {1, 1};
  std::size_t part = 0, of = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%zu/%zu%c", &part, &of, &rest) != 2 || part < 1 || part > of) {
    fail_input("--shard {}: not a valid part; allowed: 1/4 to 4/4 (of four parts), for any number of parts", text);
  }
  return {part, of};
}

ClassOptions class_options(const Session& session, const GradeOptions& options) {
  ClassOptions chosen = options;
  chosen.assignment =
      options.assignment_file.empty() ? session.book.root / "assignment.toml" : fs::path(options.assignment_file);
  if (!options.hidden_folder.empty() && !fs::is_directory(options.hidden_folder)) {
    fail_input("--hidden {}: no such folder", options.hidden_folder);
  }
  if (options.submissions.empty() && !options.prepare) {
    fail_input("grade needs submissions; allowed: folders, archives (.zip, .tar.gz, …) or single files");
  }
  if (!options.results_file.empty() && options.submissions.size() != 1) {
    fail_input("--results is for one submission; allowed: --out FOLDER for several");
  }
  require_writable("--results", options.results_file);
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
    fmt::print("no isolation (--unsafe): the submissions' code ran with all of your rights\n");
  }
}

}  // namespace

int grade(const Session& session, const GradeOptions& options) {
  const ClassOptions chosen = class_options(session, options);
  if (options.prepare) {
    build_course(grading::load_course(session, chosen));
    fmt::print("built everything that grading needs\n");
    return kDone;
  }
  const GradedClass graded = grade_class(session, chosen, [&](const grading::Graded& submission) {
    if (!session.json) print_line(session, submission);
  });
  print_class(session, chosen, graded);
  return graded.trouble ? kEnvironment : kDone;
}

}  // namespace workbook::cli
