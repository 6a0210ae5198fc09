// What is written down: stubs, the order of the chapters.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/stubs.hpp"
#include "common/book/text.hpp"
#include "common/gates/groups.hpp"

namespace workbook::gates {
namespace fs = std::filesystem;
namespace {

using book::Chapter;
using judge::Workspace;

bool in_ci() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && std::string(ci) == "true";
}

/// Adds a file and the files of solutions/ that it includes, directly or through others.
void add_included(const fs::path& file, const fs::path& solutions, std::set<fs::path>& files) {
  if (!fs::is_regular_file(file) || !files.insert(file).second) return;
  std::istringstream text(book::read_file(file));
  for (std::string line; std::getline(text, line);) {
    const std::string included = book::included_file(line);
    if (included.empty()) continue;
    add_included(file.parent_path() / included, solutions, files);
    add_included(solutions / included, solutions, files);
  }
}

/// What is wrong with a line that includes a file of an earlier chapter; empty if nothing is.
std::string wrong_with_include(const Workspace& workspace, const Chapter& chapter, const std::string& line) {
  const fs::path solutions = workspace.book.root / "solutions";
  std::set<fs::path> files;
  if (const std::string included = book::included_file(line); !included.empty())
    add_included(solutions / included, solutions, files);
  for (const fs::path& file : files) {
    const std::string name = file.parent_path().filename().string();
    if (std::ranges::count(chapter.compiles, name) > 0) continue;
    if (std::ranges::count(chapter.uses, name) == 0)
      return fmt::format("includes {}, and `uses` of its chapter.toml does not name {}", workspace.shown(file), name);
    const book::MarkedFile marked = book::parse_marked(file.string(), book::read_file(file));
    if (!marked.regions.empty())
      return fmt::format("includes {}, which contains exercise {}; use given files only", workspace.shown(file),
                         marked.regions.front().id);
  }
  return "";
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
        const std::string wrong = wrong_with_include(workspace, chapter, line);
        findings.expect(wrong.empty(), fmt::format("solutions/{}/{}:{}: {}", chapter.name(), file, number, wrong));
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
  findings.detail = "no chapter uses a later one, or an exercise of an earlier one";
}

}  // namespace workbook::gates
