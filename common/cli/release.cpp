// release: writes a folder and an archive for students, with only an assignment's exercises open. common/grading does
// the work.
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
  if (options.assignment.empty() == (options.exercises.empty() && options.chapters.empty())) {
    fail_input("release needs the open exercises; allowed: --exercises 2.1,2.3, --chapters 2, or --assignment FILE");
  }
  Assignment assignment = options.assignment.empty()
                              ? grading::make_assignment(session.book, options.exercises, options.chapters)
                              : grading::load_assignment(options.assignment, session.book);
  if (!options.title.empty()) assignment.title = options.title;
  if (!options.due.empty()) assignment.due = options.due;
  if (options.no_hints) assignment.hints = false;
  return assignment;
}

grading::PublishOptions publish_options(const Assignment& assignment, const ReleaseOptions& options) {
  if (!options.hidden.empty() && !options.gradescope) {
    fail_input("--hidden {}: a release for students never contains hidden tests; allowed: with --gradescope",
               options.hidden);
  }
  if (!options.hidden.empty() && !fs::is_directory(options.hidden)) {
    fail_input("--hidden {}: no such folder", options.hidden);
  }
  const fs::path folder =
      fs::absolute(options.out.empty() ? folder_name(assignment.title) : options.out).lexically_normal();
  const fs::path target = folder.has_filename() ? folder : folder.parent_path();
  for (const fs::path& path : grading::release_paths(target)) {
    if (fs::is_other(path)) fail_input("{}: neither a folder nor a file; allowed: another --out FOLDER", path.string());
    if (fs::exists(path) && !options.force) {
      fail_input("{} already exists; allowed: --force to replace it, --out FOLDER to write elsewhere", path.string());
    }
  }
  return {target, options.hidden, options.gradescope, options.github, !options.unverified};
}

void print_published(const Assignment& assignment, const Published& published, bool verified) {
  // Lines that the answers share with given code, by file.
  std::map<std::string, std::set<std::string>> common;
  for (const AnswerLine& line : published.given) {
    common[line.file].insert(fmt::format("{}: {}", line.exercise, line.text));
  }
  for (const auto& [file, lines] : common) {
    fmt::print("lines of answers that also occur in given code: {}{}\n", file,
               grading::is_oracle(file) ? " (it computes attention: the oracle)" : "");
    for (const std::string& line : lines) fmt::print("    {}\n", line);
  }
  for (const fs::path& path : published.written) fmt::print("written: {}\n", path.string());
  if (!grading::archives_supported()) fmt::print("no archive: archives need libarchive (package libarchive-dev)\n");
  fmt::print("{} files, {} points; {}\n", published.files, assignment.points(),
             verified ? "verified: it builds, the open exercises are todo, and the answers pass"
                      : "NOT verified (--no-verify)");
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

}  // namespace

int release(const Session& session, const ReleaseOptions& options) {
  const Assignment assignment = chosen_assignment(session, options);
  const Published published = publish(session, assignment, publish_options(assignment, options));
  if (session.json) {
    print_json(to_json(assignment, published, !options.unverified));
  } else {
    print_published(assignment, published, !options.unverified);
  }
  return kDone;
}

}  // namespace workbook::cli
