// What is written down: stubs, the order of the chapters.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/stubs.hpp"
#include "common/gates/groups.hpp"

namespace workbook::gates {
namespace {

using book::Chapter;
using judge::Workspace;

bool in_ci() {
  const char* ci = std::getenv("CI");
  return ci != nullptr && std::string(ci) == "true";
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

}  // namespace workbook::gates
