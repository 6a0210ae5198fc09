// release: a folder and an archive for students, with just an assignment's exercises open. How is common/grading's.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "common/attention/error.hpp"
#include "common/cli/verbs.hpp"
#include "common/grading/publish.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

using grading::AnswerLine, grading::Assignment, grading::Published;
using nlohmann::json;

struct ReleaseOptions {
  std::vector<std::string> exercises, chapters;  ///< "2.1,2.3"; "2"
  std::string assignment;                        ///< assignment.toml in their place
  std::string title, due, out, hidden;
  bool no_hints = false, gradescope = false, github = false, force = false;
  bool verify = true;
};

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

Assignment chosen_assignment(const Session& session, const ReleaseOptions& options) {
  const std::vector<std::string> exercises = split(options.exercises), chapters = split(options.chapters);
  if (options.assignment.empty() == (exercises.empty() && chapters.empty())) {
    fail_input("release needs to know what is open; allowed: --exercises 2.1,2.3, --chapters 2, or --assignment FILE");
  }
  Assignment assignment = options.assignment.empty() ? grading::make_assignment(session.book, exercises, chapters)
                                                     : grading::load_assignment(options.assignment, session.book);
  if (!options.title.empty()) assignment.title = options.title;
  if (!options.due.empty()) assignment.due = options.due;
  if (options.no_hints) assignment.hints = false;
  return assignment;
}

grading::PublishOptions publish_options(const Assignment& assignment, const ReleaseOptions& options) {
  if (!options.hidden.empty() && !options.gradescope) {
    fail_input("--hidden {}: hidden tests are never part of a release; allowed: with --gradescope", options.hidden);
  }
  if (!options.hidden.empty() && !fs::is_directory(options.hidden)) {
    fail_input("--hidden {}: there is no such folder", options.hidden);
  }
  const fs::path folder =
      fs::absolute(options.out.empty() ? folder_name(assignment.title) : options.out).lexically_normal();
  const fs::path target = folder.has_filename() ? folder : folder.parent_path();
  for (const fs::path& path : grading::release_paths(target)) {
    if (fs::exists(path) && !options.force) {
      fail_input("{} is there already; allowed: --force to replace it, --out FOLDER to write elsewhere", path.string());
    }
  }
  return {target, options.hidden, options.gradescope, options.github, options.verify};
}

void print_published(const Assignment& assignment, const Published& published, bool verified) {
  // What the answers have in common with given code, by file.
  std::map<std::string, std::set<std::string>> common;
  for (const AnswerLine& line : published.given) {
    common[line.file].insert(fmt::format("{}: {}", line.exercise, line.text));
  }
  for (const auto& [file, lines] : common) {
    fmt::print("lines of answers that stand in given code too: {}{}\n", file,
               grading::is_oracle(file) ? " (computes attention by itself: the oracle, or what mistakes give)" : "");
    for (const std::string& line : lines) fmt::print("    {}\n", line);
  }
  for (const fs::path& path : published.written) fmt::print("written: {}\n", path.string());
  if (!grading::archives_supported()) fmt::print("no archive: that needs libarchive (package libarchive-dev)\n");
  fmt::print("{} files, {} points; {}\n", published.files, assignment.points(),
             verified ? "verified: it builds, what is open is todo, the answers pass" : "NOT verified (--no-verify)");
}

json to_json(const Assignment& assignment, const Published& published, bool verified) {
  json given = json::array(), written = json::array();
  for (const AnswerLine& line : published.given) {
    given.push_back({{"exercise", line.exercise},
                     {"text", line.text},
                     {"file", line.file},
                     {"line", line.line},
                     {"oracle", grading::is_oracle(line.file)}});
  }
  for (const fs::path& path : published.written) written.push_back(path.string());
  return {{"written", written},
          {"files", published.files},
          {"points", assignment.points()},
          {"verified", verified},
          {"common_lines", given}};
}

int release(const Session& session, const ReleaseOptions& options) {
  const Assignment assignment = chosen_assignment(session, options);
  const Published published = publish(session, assignment, publish_options(assignment, options));
  if (session.json) {
    print_json(to_json(assignment, published, options.verify));
  } else {
    print_published(assignment, published, options.verify);
  }
  return kDone;
}

}  // namespace

Runner declare_release(Options& options) {
  const auto given = std::make_shared<ReleaseOptions>();
  const auto unverified = std::make_shared<bool>(false);
  options.option("--exercises", given->exercises, "Exercises that stay open: 2.1,2.3");
  options.option("--chapters", given->chapters, "Chapters that stay open: 2,3");
  options.option("--assignment", given->assignment, "An assignment.toml that says what is open")
      .allow(not_empty("a file name"));
  options.option("--title", given->title, "The assignment's title").allow(not_empty("a title"));
  options.option("--due", given->due, "When it is due, as the students read it").allow(not_empty("a date"));
  options.option("--out", given->out, "The folder to write (default: named after the title)")
      .allow(not_empty("a folder"));
  options.flag("--no-hints", given->no_hints, "Leave the hints out");
  options.flag("--github", given->github, "With a workflow for GitHub Actions");
  options.flag("--gradescope", given->gradescope, "Also the autograder for Gradescope, as a zip");
  options.option("--hidden", given->hidden, "Hidden tests, for the autograder only").allow(not_empty("a folder"));
  options.flag("--force", given->force, "Replace what is there");
  options.flag("--no-verify", *unverified, "Do not build and test it first");
  return [given, unverified](Session& session) {
    given->verify = !*unverified;
    return release(session, *given);
  };
}

}  // namespace workbook::cli
