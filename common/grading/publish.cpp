#include "common/grading/publish.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <stdexcept>

#include "common/book/files.hpp"
#include "common/book/folders.hpp"
#include "common/judge/verdict.hpp"
#include "common/worker/command.hpp"

namespace workbook::grading {
namespace fs = std::filesystem;
namespace {

using judge::Result, judge::Verdict, judge::Workspace;
using nlohmann::json;

void write_files(const fs::path& folder, const Files& files) {
  for (const auto& [name, file] : files) {
    book::write_if_changed(folder / name, file.text);
    if (file.executable) fs::permissions(folder / name, fs::perms(0111), fs::perm_options::add);
  }
}

/// Tests a chapter of the staged release through its own launcher.
std::vector<Verdict> test_release(const Workspace& workspace, const fs::path& folder, const book::Chapter& chapter) {
  worker::CommandOptions options;
  options.folder = folder;
  options.environment["CXX"] = workspace.toolchain.compiler;
  // Compiler outputs equal those of the last release except for the folder's name, so ccache can reuse them.
  if (!worker::find_program("ccache").empty())
    options.environment.insert(
        {{"CMAKE_CXX_COMPILER_LAUNCHER", "ccache"}, {"CCACHE_BASEDIR", folder.string()}, {"CCACHE_NOHASHDIR", "1"}});
  std::vector<Verdict> tests;
  for (const Backend backend : chapter.backends) {
    if (backend == Backend::cuda || !workspace.toolchain.can_build(backend)) continue;
    // Only stdout is JSON; stderr goes to a separate file.
    const fs::path errors = folder / "build" / "verification.log";
    fs::create_directories(errors.parent_path());
    const worker::CommandResult result =
        worker::run_command({"/bin/sh", "-c", "exec ./workbook test \"$0\" --backend \"$1\" --json 2>\"$2\"",
                             std::to_string(chapter.number), name(backend), errors.string()},
                            options);
    if (!json::accept(result.output))
      throw std::runtime_error(fmt::format("the release does not run on its own (exit code {}):\n{}\n{}",
                                           result.exit_code, book::read_file(errors), result.output));
    const json document = json::parse(result.output);
    for (const json& run : document.at("runs"))
      for (const json& test : run.at("tests")) tests.push_back(judge::verdict_from_json(test));
  }
  return tests;
}

/// Adds the problems in a chapter's tests. With the answers, every test must pass. As released, tests of open exercises
/// must be todo and no other test may fail.
void find_problems(const Assignment& assignment, const book::Chapter& chapter, const std::vector<Verdict>& tests,
                   bool answers, std::vector<std::string>& problems) {
  std::set<std::string> seen;  // exercises with a test; with the answers, with one that passed
  for (const Verdict& test : tests) {
    const bool waits = test.result == Result::todo || test.result == Result::blocked;
    const bool open = !answers && assignment.is_open(test.exercise);
    if (!answers || test.result == Result::passed) seen.insert(test.exercise);
    if (open ? waits : test.result <= Result::skipped || (waits && !answers)) continue;
    problems.push_back(fmt::format("{}{} \"{}\": {}{}\n{}", answers ? "with its answer, " : "", test.exercise,
                                   test.test, name(test.result), open ? ", not todo" : "", test.message));
  }
  if (answers && seen.empty()) problems.push_back(fmt::format("no test of chapter {} passed", chapter.number));
  for (const book::Exercise& exercise : chapter.exercises)
    if (!answers && assignment.is_open(exercise.id) && !seen.contains(exercise.id))
      problems.push_back(fmt::format("{}: none of its tests ran", exercise.id));
}

/// Checks that the release compiles and runs on its own, that its open exercises are open, and that their answers pass.
void verify(const Workspace& workspace, const Assignment& assignment, const Files& files, const fs::path& folder) {
  std::vector<std::string> problems;
  for (const bool answers : {false, true}) {
    write_files(folder, answers ? with_answers(workspace.book, assignment, files) : files);
    for (const int number : assignment.open_chapters()) {
      const book::Chapter& chapter = *workspace.book.find(number);
      workspace.progress(
          fmt::format("verifying: chapter {} {}", number, answers ? "with the answers" : "as the students get it"));
      find_problems(assignment, chapter, test_release(workspace, folder, chapter), answers, problems);
    }
  }
  workspace.progress("");
  if (!problems.empty())
    throw std::runtime_error(
        fmt::format("the release failed its verification; nothing was written:\n  {}", fmt::join(problems, "\n  ")));
}

/// The lines of answers in given code; std::runtime_error if an answer leaks.
std::vector<AnswerLine> given_lines(const book::Book& book, const Assignment& assignment, const Files& files) {
  AnswerSearch search = find_answers(book, assignment, files);
  if (search.leaked.empty()) return std::move(search.given);
  std::string lines;
  for (const AnswerLine& line : search.leaked)
    lines += fmt::format("\n  {}:{}: a line of the answer to {}: {}", line.file, line.line, line.exercise, line.text);
  throw std::runtime_error("the release would contain an answer; nothing was written:" + lines);
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
  const fs::path beside = fs::absolute(target).parent_path();
  fs::create_directories(beside);
  if (options.verify) verify(workspace, assignment, files, *book::temporary_folder(beside, ".verify-"));

  // Writes to a temporary folder first, so that the release appears completely or not at all.
  const auto staging = book::temporary_folder(beside, ".release-");
  published.written = release_paths(target);
  const auto staged = [&](const fs::path& path) { return *staging / path.filename(); };
  write_files(staged(target), files);
  if (archives_supported()) {
    Files in_folder;
    for (const auto& [name, file] : files) in_folder[target.filename().string() + "/" + name] = file;
    write_archive(staged(published.written[1]), in_folder);
  }
  if (options.gradescope)
    write_archive(staged(published.written[2]), autograder_files(workspace.book, assignment, options.hidden));
  std::erase_if(published.written, [&](const fs::path& path) { return !fs::exists(staged(path)); });
  for (const fs::path& path : published.written) {
    fs::remove_all(path);
    fs::rename(staged(path), path);
  }
  return published;
}

}  // namespace workbook::grading
