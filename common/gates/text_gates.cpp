// What is written down: stubs, the order of the chapters, lessons.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"
#include "common/gates/groups.hpp"

namespace workbook::gates {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using book::Exercise;
using judge::Workspace;

bool in_ci() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && std::string(ci) == "true";
}

std::string squeezed(const std::string& line) {
  const std::size_t from = line.find_first_not_of(" \t");
  return from == std::string::npos ? "" : line.substr(from, line.find_last_not_of(" \t\r") - from + 1);
}

/// Whether the text names the exercise: 3.1 is not named where 3.10 is.
bool mentions(const std::string& text, const std::string& id) {
  for (std::size_t at = text.find(id); at != std::string::npos; at = text.find(id, at + 1)) {
    const char after = at + id.size() < text.size() ? text[at + id.size()] : ' ';
    if (after < '0' || after > '9') return true;
  }
  return false;
}

/// Where the Markdown links of a line lead, those within the repository.
std::vector<std::string> links_in(const std::string& line) {
  std::vector<std::string> targets;
  for (std::size_t at = line.find("]("); at != std::string::npos; at = line.find("](", at + 2)) {
    const std::size_t end = line.find(')', at);
    if (end == std::string::npos) break;
    const std::string target = line.substr(at + 2, end - at - 2);
    const std::string file = target.substr(0, target.find('#'));
    if (!file.empty() && target.find(':') == std::string::npos) targets.push_back(file);
  }
  return targets;
}

/// The lines that a lesson may show: those of the solutions outside the answers, and of the problem's headers.
std::set<std::string> compiled_lines(const Workspace& workspace) {
  std::set<std::string> compiled;
  const auto add = [&](const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) compiled.insert(squeezed(line));
  };
  for (const Chapter& chapter : workspace.book.chapters) {
    for (const std::string& file : chapter.files)
      add(book::make_stub(book::parse_marked(file, book::read_file(workspace.book.solution(chapter, file)))));
  }
  for (const auto& entry : fs::directory_iterator(workspace.book.root / "common" / "attention")) {
    if (entry.path().extension() == ".hpp") add(book::read_file(entry.path()));
  }
  return compiled;
}

void check_page(const Workspace& workspace, const fs::path& page, const std::set<std::string>& compiled,
                Findings& findings) {
  std::istringstream lines(book::read_file(page));
  bool in_code = false, in_cpp = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string where = fmt::format("{}:{}", workspace.shown(page), number);
    if (squeezed(line).starts_with("```")) {
      in_cpp = !in_code && squeezed(line).starts_with("```cpp");
      in_code = !in_code;
      continue;
    }
    if (in_cpp && !squeezed(line).empty() && !squeezed(line).starts_with("//")) {
      findings.expect(compiled.contains(squeezed(line)),
                      where + ": this line of C++ stands in no file that the build compiles: " + line);
    }
    if (in_code) continue;
    for (const std::string& target : links_in(line)) {
      findings.expect(fs::exists(page.parent_path() / target), where + ": the link leads nowhere: " + target);
    }
  }
}

}  // namespace

void check_stubs(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  int work = 0;
  for (const book::StubFile& file : book::compare_stubs(workspace.book)) {
    if (!std::ranges::count(inspection.chapters, file.chapter)) continue;
    const std::string where = fmt::format("{}:{}", workspace.shown(file.path), std::max(file.line, 1));
    switch (file.state) {
      case book::StubState::current:
        ++findings.passed;
        break;
      case book::StubState::work:
        ++work;
        findings.expect(!in_ci(), where + ": a region is filled in; what is committed must be the stub");
        break;
      case book::StubState::missing:
        findings.expect(false, where + ": missing; ./workbook stubs writes it");
        break;
      case book::StubState::outdated:
        findings.expect(false, where + ": the solution has changed since; ./workbook stubs writes the new stub");
        break;
      case book::StubState::drifted:
        findings.expect(false, where + ": differs from the stub outside the exercises");
        break;
    }
  }
  findings.detail =
      fmt::format("{} files{}", findings.passed, work > 0 ? fmt::format(", {} with your work in them", work) : "");
}

void check_order(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  for (const Chapter* chapter_at : inspection.chapters) {
    const Chapter& chapter = *chapter_at;
    for (const std::string& file : chapter.files) {
      std::istringstream text(book::read_file(workspace.book.solution(chapter, file)));
      int number = 0;
      for (std::string line; std::getline(text, line);) {
        ++number;
        for (const Chapter& later : workspace.book.chapters) {
          if (later.number <= chapter.number) continue;
          const bool uses = line.find(later.name()) != std::string::npos ||
                            line.find(fmt::format("ch{:02}::", later.number)) != std::string::npos;
          findings.expect(
              !uses, fmt::format("solutions/{}/{}:{}: uses chapter {}", chapter.name(), file, number, later.number));
        }
      }
    }
  }
  findings.detail = "no chapter uses a later one";
}

void check_lessons(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  std::vector<fs::path> pages{workspace.book.root / "README.md"};
  for (const auto& entry : fs::directory_iterator(workspace.book.root / "notes")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  for (const Chapter* chapter : inspection.chapters) {
    const fs::path lesson = workspace.book.root / "chapters" / chapter->name() / "README.md";
    pages.push_back(lesson);
    const std::string text = book::read_file(lesson);
    for (const Exercise& exercise : chapter->exercises) {
      findings.expect(mentions(text, exercise.id),
                      fmt::format("{}:1: exercise {} is not mentioned", workspace.shown(lesson), exercise.id));
    }
  }
  const std::set<std::string> compiled = compiled_lines(workspace);
  for (const fs::path& page : pages) check_page(workspace, page, compiled, findings);
  findings.detail = fmt::format("{} lines, links and exercises of {} pages", findings.passed, pages.size());
}

}  // namespace workbook::gates
