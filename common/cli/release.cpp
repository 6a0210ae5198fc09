// release: a folder and an archive for students, with just an assignment's exercises open. Verified before it is there:
// built and tested in a folder of its own, by its own launcher.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/book/stubs.hpp"
#include "common/cli/verbs.hpp"
#include "common/grading/release.hpp"
#include "common/worker/command.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using grading::Assignment;
using grading::Files;
using judge::Result, judge::Verdict;
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

void write_files(const fs::path& folder, const Files& files) {
  for (const auto& [name, file] : files) {
    book::write_if_changed(folder / name, file.text);
    if (file.executable) {
      fs::permissions(folder / name, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                      fs::perm_options::add);
    }
  }
}

/// "2.1,2.3" and "2.1" "2.3" are the same.
std::vector<std::string> split(const std::vector<std::string>& lists) {
  std::vector<std::string> parts;
  for (const std::string& list : lists) {
    std::size_t begin = 0;
    while (begin <= list.size()) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      if (end > begin) parts.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return parts;
}

/// A folder's name: "Assignment 1: online softmax" -> "assignment_1_online_softmax".
std::string folder_name(const std::string& title) {
  std::string name;
  for (const char c : title) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      name += char(std::tolower(static_cast<unsigned char>(c)));
    } else if (c == '.') {
      name += c;
    } else if (!name.empty() && name.back() != '_') {
      name += '_';
    }
  }
  while (!name.empty() && (name.back() == '_' || name.back() == '.')) name.pop_back();
  return name.empty() ? "assignment" : name;
}

/// Tests a chapter of the staged release through its own launcher.
std::vector<Verdict> test_release(const Session& session, const fs::path& folder, const book::Chapter& chapter) {
  worker::CommandOptions options;
  options.folder = folder;
  options.environment["CXX"] = session.toolchain.compiler;
  // Compilers' outputs are the same as in the last release, but for its folder's name.
  if (!worker::find_program("ccache").empty()) {
    options.environment.insert(
        {{"CMAKE_CXX_COMPILER_LAUNCHER", "ccache"}, {"CCACHE_BASEDIR", folder.string()}, {"CCACHE_NOHASHDIR", "1"}});
  }
  std::vector<Verdict> tests;
  for (const Backend backend : chapter.backends) {
    if (backend == Backend::cuda || !session.toolchain.can_build(backend)) continue;
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
    for (const json& run : json::parse(result.output).at("runs")) {
      for (const json& test : run.at("tests")) tests.push_back(judge::verdict_from_json(test));
    }
  }
  return tests;
}

/// The release compiles and runs by itself, its open exercises are open, and their answers pass.
void verify(const Session& session, const Assignment& assignment, const Files& files, const fs::path& folder) {
  std::vector<std::string> problems;
  write_files(folder, files);
  for (const int number : assignment.open_chapters()) {
    const book::Chapter& chapter = *session.book.find(number);
    session.progress(fmt::format("verifying: chapter {} as the students get it", number));
    std::set<std::string> seen;
    for (const Verdict& test : test_release(session, folder, chapter)) {
      const bool open = assignment.is_open(test.exercise);
      const bool waits = test.result == Result::todo || test.result == Result::blocked;
      if (open) seen.insert(test.exercise);
      if (open && !waits)
        problems.push_back(fmt::format("{} \"{}\": {}, not todo", test.exercise, test.test, name(test.result)));
      if (!open && !waits && test.result != Result::passed && test.result != Result::skipped) {
        problems.push_back(fmt::format("{} \"{}\": {}\n{}", test.exercise, test.test, name(test.result), test.message));
      }
    }
    for (const Assignment::Exercise& exercise : assignment.exercises) {
      if (exercise.id.starts_with(fmt::format("{}.", number)) && !seen.contains(exercise.id)) {
        problems.push_back(fmt::format("{}: none of its tests ran", exercise.id));
      }
    }
  }
  write_files(folder, with_answers(session.book, assignment, files));
  for (const int number : assignment.open_chapters()) {
    const book::Chapter& chapter = *session.book.find(number);
    session.progress(fmt::format("verifying: chapter {} with the answers", number));
    int passed = 0;
    for (const Verdict& test : test_release(session, folder, chapter)) {
      passed += test.result == Result::passed;
      if (test.result != Result::passed && test.result != Result::skipped) {
        problems.push_back(fmt::format("with its answer, {} \"{}\": {}\n{}", test.exercise, test.test,
                                       name(test.result), test.message));
      }
    }
    if (passed == 0) problems.push_back(fmt::format("with its answers, no test of chapter {} passed", number));
  }
  session.progress("");
  if (!problems.empty()) {
    throw std::runtime_error(fmt::format("the release does not hold what it promises; nothing was written:\n  {}",
                                         fmt::join(problems, "\n  ")));
  }
}

}  // namespace

int release(const Session& session, const ReleaseOptions& options) {
  const std::vector<std::string> exercises = split(options.exercises), chapters = split(options.chapters);
  if (options.assignment.empty() == (exercises.empty() && chapters.empty())) {
    fail_input("release needs to know what is open; allowed: --exercises 2.1,2.3, --chapters 2, or --assignment FILE");
  }
  Assignment assignment = options.assignment.empty() ? grading::make_assignment(session.book, exercises, chapters)
                                                     : grading::load_assignment(options.assignment, session.book);
  if (!options.title.empty()) assignment.title = options.title;
  if (!options.due.empty()) assignment.due = options.due;
  if (options.no_hints) assignment.hints = false;
  if (!options.hidden.empty() && !options.gradescope) {
    fail_input("--hidden {}: hidden tests are never part of a release; allowed: with --gradescope", options.hidden);
  }
  if (!options.hidden.empty() && !fs::is_directory(options.hidden)) {
    fail_input("--hidden {}: there is no such folder", options.hidden);
  }
  const fs::path folder =
      fs::absolute(options.out.empty() ? folder_name(assignment.title) : options.out).lexically_normal();
  const fs::path target = folder.has_filename() ? folder : folder.parent_path();
  const fs::path archive = target.string() + ".tar.gz", autograder = target.string() + "-autograder.zip";
  for (const fs::path& path : {target, archive, autograder}) {
    if (fs::exists(path) && !options.force) {
      fail_input("{} is there already; allowed: --force to replace it, --out FOLDER to write elsewhere", path.string());
    }
  }

  Files files = grading::release_files(session.book, assignment);
  if (options.github) files[".github/workflows/workbook.yml"] = {grading::github_workflow(assignment)};
  const grading::AnswerSearch search = grading::find_answers(session.book, assignment, files);
  if (!search.leaked.empty()) {
    std::string lines;
    for (const grading::AnswerLine& line : search.leaked) {
      lines += fmt::format("\n  {}:{}: a line of the answer to {}: {}", line.file, line.line, line.exercise, line.text);
    }
    throw std::runtime_error("an answer stands in what would be released; nothing was written:" + lines);
  }
  if (options.verify) {
    const Staging staging(target.parent_path() / fmt::format(".{}.verify-{}", target.filename().string(), ::getpid()));
    verify(session, assignment, files, staging.path());
  }

  // Under a temporary name first: a release is there whole or not at all.
  const Staging part(target.parent_path() / fmt::format(".{}.part-{}", target.filename().string(), ::getpid()));
  write_files(part.path(), files);
  std::error_code ignored;
  fs::remove_all(target, ignored);
  fs::rename(part.path(), target);
  std::vector<std::string> written{target.string()};
  if (grading::archives_supported()) {
    Files in_folder;
    for (const auto& [name, file] : files) in_folder[target.filename().string() + "/" + name] = file;
    grading::write_archive(archive, in_folder);
    written.push_back(archive.string());
  }
  if (options.gradescope) {
    grading::write_archive(autograder, grading::autograder_files(session.book, assignment, options.hidden));
    written.push_back(autograder.string());
  }

  // What the answers have in common with given code, by file.
  std::map<std::string, std::set<std::string>> common;
  for (const grading::AnswerLine& line : search.given) {
    common[line.file].insert(fmt::format("{}: {}", line.exercise, line.text));
  }
  if (session.json) {
    json given = json::array();
    for (const grading::AnswerLine& line : search.given) {
      given.push_back({{"exercise", line.exercise},
                       {"text", line.text},
                       {"file", line.file},
                       {"line", line.line},
                       {"oracle", grading::is_oracle(line.file)}});
    }
    print_json({{"written", written},
                {"files", files.size()},
                {"points", assignment.points()},
                {"verified", options.verify},
                {"common_lines", given}});
    return kDone;
  }
  for (const auto& [file, lines] : common) {
    fmt::print("lines of answers that stand in given code too: {}{}\n", file,
               grading::is_oracle(file) ? " (computes attention by itself: the oracle, or what mistakes give)" : "");
    for (const std::string& line : lines) fmt::print("    {}\n", line);
  }
  for (const std::string& path : written) fmt::print("written: {}\n", path);
  if (!grading::archives_supported()) fmt::print("no archive: that needs libarchive (package libarchive-dev)\n");
  fmt::print(
      "{} files, {} points; {}\n", files.size(), assignment.points(),
      options.verify ? "verified: it builds, what is open is todo, the answers pass" : "NOT verified (--no-verify)");
  return kDone;
}

}  // namespace workbook::cli
