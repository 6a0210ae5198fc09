#include "common/grading/publish.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <set>
#include <stdexcept>

#include "common/book/files.hpp"
#include "common/judge/verdict.hpp"
#include "common/worker/command.hpp"

namespace workbook::grading {
namespace fs = std::filesystem;
namespace {

using judge::Result, judge::Verdict, judge::Workspace;
using nlohmann::json;

/// A folder that is removed with its owner.
class Staging {
 public:
  explicit Staging(fs::path path) : path_(std::move(path)) { fs::remove_all(path_); }
  ~Staging() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// ".NAME.verify-PID" beside the target.
fs::path hidden_beside(const fs::path& target, const std::string& purpose) {
  return target.parent_path() / fmt::format(".{}.{}-{}", target.filename().string(), purpose, ::getpid());
}

void write_files(const fs::path& folder, const Files& files) {
  for (const auto& [name, file] : files) {
    book::write_if_changed(folder / name, file.text);
    if (file.executable) {
      fs::permissions(folder / name, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                      fs::perm_options::add);
    }
  }
}

/// Tests a chapter of the staged release through its own launcher.
std::vector<Verdict> test_release(const Workspace& workspace, const fs::path& folder, const book::Chapter& chapter) {
  worker::CommandOptions options;
  options.folder = folder;
  options.environment["CXX"] = workspace.toolchain.compiler;
  // Compilers' outputs are the same as in the last release, but for its folder's name.
  if (!worker::find_program("ccache").empty()) {
    options.environment.insert(
        {{"CMAKE_CXX_COMPILER_LAUNCHER", "ccache"}, {"CCACHE_BASEDIR", folder.string()}, {"CCACHE_NOHASHDIR", "1"}});
  }
  std::vector<Verdict> tests;
  for (const Backend backend : chapter.backends) {
    if (backend == Backend::cuda || !workspace.toolchain.can_build(backend)) continue;
    // stdout alone is JSON; what is said on stderr goes beside.
    const fs::path errors = folder / "build" / "verification.log";
    fs::create_directories(errors.parent_path());
    const worker::CommandResult result =
        worker::run_command({"/bin/sh", "-c", "exec ./workbook test \"$0\" --backend \"$1\" --json 2>\"$2\"",
                             std::to_string(chapter.number), name(backend), errors.string()},
                            options);
    if (!json::accept(result.output)) {
      throw std::runtime_error(fmt::format("the release does not run by itself (exit code {}):\n{}\n{}",
                                           result.exit_code, book::read_file(errors), result.output));
    }
    const json document = json::parse(result.output);
    for (const json& run : document.at("runs")) {
      for (const json& test : run.at("tests")) tests.push_back(judge::verdict_from_json(test));
    }
  }
  return tests;
}

bool passed_or_skipped(const Verdict& test) {
  return test.result == Result::passed || test.result == Result::skipped;
}

/// What is wrong with a chapter as the students get it: an open exercise that is not todo, a test that fails.
void find_problems(const Assignment& assignment, const book::Chapter& chapter, const std::vector<Verdict>& tests,
                   std::vector<std::string>& problems) {
  std::set<std::string> seen;
  for (const Verdict& test : tests) {
    const bool waits = test.result == Result::todo || test.result == Result::blocked;
    if (assignment.is_open(test.exercise)) {
      seen.insert(test.exercise);
      if (!waits)
        problems.push_back(fmt::format("{} \"{}\": {}, not todo", test.exercise, test.test, name(test.result)));
    } else if (!waits && !passed_or_skipped(test)) {
      problems.push_back(fmt::format("{} \"{}\": {}\n{}", test.exercise, test.test, name(test.result), test.message));
    }
  }
  for (const book::Exercise& exercise : chapter.exercises) {
    if (assignment.is_open(exercise.id) && !seen.contains(exercise.id))
      problems.push_back(fmt::format("{}: none of its tests ran", exercise.id));
  }
}

/// What is wrong with a chapter that has its answers.
void find_problems_with_answers(const book::Chapter& chapter, const std::vector<Verdict>& tests,
                                std::vector<std::string>& problems) {
  bool any_passed = false;
  for (const Verdict& test : tests) {
    any_passed = any_passed || test.result == Result::passed;
    if (!passed_or_skipped(test)) {
      problems.push_back(
          fmt::format("with its answer, {} \"{}\": {}\n{}", test.exercise, test.test, name(test.result), test.message));
    }
  }
  if (!any_passed) problems.push_back(fmt::format("with its answers, no test of chapter {} passed", chapter.number));
}

/// The release compiles and runs by itself, its open exercises are open, and their answers pass.
void verify(const Workspace& workspace, const Assignment& assignment, const Files& files, const fs::path& folder) {
  std::vector<std::string> problems;
  write_files(folder, files);
  for (const int number : assignment.open_chapters()) {
    const book::Chapter& chapter = *workspace.book.find(number);
    workspace.progress(fmt::format("verifying: chapter {} as the students get it", number));
    find_problems(assignment, chapter, test_release(workspace, folder, chapter), problems);
  }
  write_files(folder, with_answers(workspace.book, assignment, files));
  for (const int number : assignment.open_chapters()) {
    const book::Chapter& chapter = *workspace.book.find(number);
    workspace.progress(fmt::format("verifying: chapter {} with the answers", number));
    find_problems_with_answers(chapter, test_release(workspace, folder, chapter), problems);
  }
  workspace.progress("");
  if (!problems.empty()) {
    throw std::runtime_error(fmt::format("the release does not hold what it promises; nothing was written:\n  {}",
                                         fmt::join(problems, "\n  ")));
  }
}

/// The lines of answers that stand in given code; std::runtime_error if any stands where it must not.
std::vector<AnswerLine> given_lines(const book::Book& book, const Assignment& assignment, const Files& files) {
  AnswerSearch search = find_answers(book, assignment, files);
  if (search.leaked.empty()) return std::move(search.given);
  std::string lines;
  for (const AnswerLine& line : search.leaked) {
    lines += fmt::format("\n  {}:{}: a line of the answer to {}: {}", line.file, line.line, line.exercise, line.text);
  }
  throw std::runtime_error("an answer stands in what would be released; nothing was written:" + lines);
}

}  // namespace

std::vector<fs::path> release_paths(const fs::path& folder) {
  return {folder, folder.string() + ".tar.gz", folder.string() + "-autograder.zip"};
}

Published publish(const Workspace& workspace, const Assignment& assignment, const PublishOptions& options) {
  Files files = release_files(workspace.book, assignment);
  if (options.github) files[".github/workflows/workbook.yml"] = {github_workflow(workspace.book, assignment)};
  Published published;
  published.given = given_lines(workspace.book, assignment, files);
  published.files = files.size();
  const fs::path& target = options.folder;
  if (options.verify) {
    const Staging staging(hidden_beside(target, "verify"));
    verify(workspace, assignment, files, staging.path());
  }

  // Under a temporary name first: a release is there whole or not at all.
  const std::vector<fs::path> paths = release_paths(target);
  const Staging part(hidden_beside(target, "part"));
  write_files(part.path(), files);
  std::error_code ignored;
  fs::remove_all(target, ignored);
  fs::rename(part.path(), target);
  published.written.push_back(target);
  if (archives_supported()) {
    Files in_folder;
    for (const auto& [name, file] : files) in_folder[target.filename().string() + "/" + name] = file;
    write_archive(paths[1], in_folder);
    published.written.push_back(paths[1]);
  }
  if (options.gradescope) {
    write_archive(paths[2], autograder_files(workspace.book, assignment, options.hidden));
    published.written.push_back(paths[2]);
  }
  return published;
}

}  // namespace workbook::grading
