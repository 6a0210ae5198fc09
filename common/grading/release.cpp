#include "common/grading/release.hpp"

#include <fmt/format.h>

#include <set>

#include "common/book/files.hpp"
#include "common/book/folders.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"
#include "common/book/text.hpp"

namespace workbook::grading {
namespace fs = std::filesystem;

using book::Book;
using book::Chapter;
using book::MarkedFile;
using book::Region;

namespace {

/// Whether a file of common/, cmake/ or tests/ may be released. Excludes editor backups and private files.
bool is_released_kind(const fs::path& path) {
  static const std::set<std::string> kinds{".cpp", ".hpp", ".cu", ".cuh", ".txt", ".cmake", ".map", ".xsd"};
  return kinds.contains(path.extension().string()) && !path.filename().string().starts_with(".");
}

void add_file(Files& files, const Book& book, const std::string& relative, bool executable = false) {
  const fs::path path = book.root / relative;
  if (fs::is_regular_file(path)) files[relative] = {book::read_file(path), executable};
}

template <class Filter>
void add_folder(Files& files, const Book& book, const std::string& folder, Filter is_taken) {
  for (const fs::path& file : book::files_below(book.root / folder))
    if (is_taken(file)) add_file(files, book, file.lexically_relative(book.root).generic_string());
}

/// The solution's file with a TODO or a body in each region, without // STUB: lines.
std::string text_with(const MarkedFile& solution, const std::function<bool(const std::string&)>& is_open) {
  if (solution.regions.empty()) return book::join_lines(solution.lines);
  MarkedFile file = book::parse_marked(solution.name, book::make_stub(solution));
  for (const Region& region : solution.regions) {
    if (is_open(region.id)) continue;
    file = book::parse_marked(solution.name, book::replace_body(file, region.id, region.body));
  }
  return book::join_lines(file.lines);
}

/// chapter.toml with placeholders for the hints, since the manifest requires two per exercise.
std::string without_hints(std::string toml) {
  const std::string none =
      "\nhints = [\n  \"This assignment comes without hints.\",\n"
      "  \"The chapter's lesson derives what this exercise needs.\",\n]\n";
  for (std::size_t at = toml.find("\nhints"); at != std::string::npos;
       at = toml.find("\nhints", at + none.size() - 1)) {
    std::size_t end = toml.find('\n', at + 1);
    if (toml[end - 1] != ']') end = toml.find('\n', toml.find("\n]", at) + 1);
    toml.replace(at, end + 1 - at, none);
  }
  return toml;
}

/// A page in which links to files that are not released are replaced by their text.
std::string without_lost_links(const std::string& page, const std::string& path, const Book& book, const Files& files) {
  std::string result = page;
  for (std::size_t at = result.find("]("); at != std::string::npos; at = result.find("](", at + 1)) {
    const std::size_t open = result.rfind('[', at), end = result.find(')', at);
    if (open == std::string::npos || end == std::string::npos) continue;
    const std::string target = result.substr(at + 2, end - at - 2);
    const std::string file =
        (fs::path(path).parent_path() / target.substr(0, target.find('#'))).lexically_normal().generic_string();
    // Brackets in code do not name a file of the book.
    if (target.empty() || target[0] == '#' || !fs::exists(book.root / file)) continue;
    const auto next = files.lower_bound(file);
    const bool released = next != files.end() && (next->first == file || next->first.starts_with(file + "/"));
    if (!released) result.replace(open, end + 1 - open, result.substr(open + 1, at - open - 1));
  }
  return result;
}

/// A template file of a release.
std::string template_of(const Book& book, const std::string& name) {
  return book::read_file(book.root / "common/grading/templates" / name);
}

std::string readme(const Book& book, const Assignment& assignment) {
  std::string points, lessons, files;
  for (const Assignment::Exercise& exercise : assignment.exercises)
    points += fmt::format("| {} | {} | {} |\n", exercise.id, book.exercise(exercise.id).title, exercise.points);
  for (const Assignment::Whole& whole : assignment.chapters)
    points += fmt::format("| chapter {} | the whole chapter: all exercises and its own tests pass | {} |\n",
                          whole.chapter, whole.points);
  for (const Assignment::Bar& bar : assignment.bars)
    points += fmt::format("| chapter {} | {} | {} |\n", bar.chapter, bar.test, bar.points);
  for (const int number : assignment.open_chapters())
    lessons += fmt::format("- [chapter {}: {}](chapters/{}/README.md)\n", number, book.find(number)->title,
                           book.find(number)->name());
  for (const std::string& file : assignment.files) files += fmt::format("- `{}`\n", file);
  using fmt::arg;
  return fmt::format(
      fmt::runtime(template_of(book, "README.md")), arg("title", assignment.title),
      arg("due", assignment.due.empty() ? "" : fmt::format("\nDue: {}\n", assignment.due)), arg("points", points),
      arg("lessons", lessons), arg("files", files), arg("chapter", assignment.open_chapters().front()),
      arg("exercise", assignment.exercises.front().id),
      arg("hint", assignment.hints ? "the next hint of an exercise" : "(there are none in this assignment)"),
      arg("these", assignment.files.size() == 1 ? "This file, alone or" : "These files,"));
}

}  // namespace

std::string in_its_tree(const MarkedFile& solution) {
  return fs::path(solution.name).lexically_relative("solutions").generic_string();
}

std::vector<const Chapter*> released_chapters(const Book& book, const Assignment& assignment) {
  std::vector<const Chapter*> chapters;
  for (const Chapter& chapter : book.chapters)
    if (chapter.number <= assignment.open_chapters().back()) chapters.push_back(&chapter);
  return chapters;
}

std::string released_text(const MarkedFile& solution, const Assignment& assignment) {
  return text_with(solution, [&](const std::string& id) { return assignment.is_open(id); });
}

Files release_files(const Book& book, const Assignment& assignment) {
  Files files;
  for (const char* file : {"CMakeLists.txt", "CMakePresets.json", "LICENSE", ".clang-format", ".clangd",
                           ".editorconfig", ".gitattributes", ".gitignore", ".devcontainer/devcontainer.json"}) {
    add_file(files, book, file);
  }
  add_file(files, book, "workbook", /*executable=*/true);
  add_folder(files, book, "common", is_released_kind);
  add_folder(files, book, "cmake", is_released_kind);
  add_folder(files, book, "tests/support", is_released_kind);
  add_file(files, book, "tests/CMakeLists.txt");
  add_folder(files, book, "notes", [](const fs::path& path) {
    const std::string extension = path.extension().string();
    const bool drawn = path.parent_path().filename() == "figures";  // needed by the page of trace --html
    return (extension == ".md" && path.filename() != "instructors.md") || extension == ".svg" || extension == ".png" ||
           (drawn && (extension == ".mjs" || extension == ".css" || extension == ".html"));
  });
  for (const Chapter* chapter : released_chapters(book, assignment)) {
    if (!book.has_solutions(*chapter))
      throw book::ManifestError(
          fmt::format("chapter {} has no solution here, so it cannot be released", chapter->number));
    const std::string folder = "chapters/" + chapter->name();
    add_folder(files, book, "tests/" + chapter->name(), is_released_kind);
    add_folder(files, book, folder, [](const fs::path& path) {
      const std::string extension = path.extension().string();
      return extension == ".md" || extension == ".svg" || extension == ".png";
    });
    const std::string manifest = book::read_file(book.manifest(*chapter));
    files[folder + "/chapter.toml"] = {assignment.hints ? manifest : without_hints(manifest)};
    for (const MarkedFile& solution : book::read_solution(book, *chapter)) {
      const ArchivedFile released{released_text(solution, assignment)};
      files["chapters/" + in_its_tree(solution)] = files[fmt::format("{}/{}", book::kPristine, in_its_tree(solution))] =
          released;
    }
  }
  files["README.md"] = {readme(book, assignment)};
  files["assignment.toml"] = {to_toml(assignment, book, /*for_students=*/true)};
  for (auto& [path, file] : files)
    if (path.ends_with(".md")) file.text = without_lost_links(file.text, path, book, files);
  return files;
}

Files with_answers(const Book& book, const Assignment& assignment, Files files) {
  for (const Chapter* chapter : released_chapters(book, assignment)) {
    for (const MarkedFile& solution : book::read_solution(book, *chapter))
      files["chapters/" + in_its_tree(solution)].text = text_with(solution, [](auto&) { return false; });
  }
  return files;
}

std::string github_workflow(const Book& book, const Assignment& assignment) {
  std::string tests;
  for (const int number : assignment.open_chapters()) tests += fmt::format(" {}", number);
  return book::replaced(template_of(book, "workflow.yml"), "@CHAPTERS@", tests);
}

Files autograder_files(const Book& book, const Assignment& assignment, const fs::path& hidden) {
  Files files;
  for (const auto& [path, file] : release_files(book, assignment))
    if (!path.starts_with(std::string(book::kPristine) + "/") && path != "README.md" && path != "assignment.toml")
      files["book/" + path] = file;
  for (const Chapter* chapter : released_chapters(book, assignment)) {
    for (const std::string& file : chapter->files)
      files["book/solutions/" + chapter->name() + "/" + file] = {book::read_file(book.solution(*chapter, file))};
  }
  files["assignment.toml"] = {to_toml(assignment, book, /*for_students=*/false)};
  for (const fs::path& file : book::files_below(hidden))
    if (is_released_kind(file))
      files["hidden/" + file.lexically_relative(hidden).generic_string()] = {book::read_file(file)};
  files["setup.sh"] = {template_of(book, "setup.sh"), true};
  files["run_autograder"] = {template_of(book, "run_autograder.sh"), true};
  return files;
}

}  // namespace workbook::grading
