// Source locations in reports: they name the reader's file, whichever copy was compiled.
#include "common/judge/locations.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/support/temporary_folder.hpp"

using namespace workbook;
using namespace workbook::judge;

namespace {

const std::string solution =
    "int given();\n"
    "// TODO(3.1) One line.\n// BEGIN 3.1\nint one;\nint two;\n// END 3.1\n"
    "int between();\n"
    "// TODO(3.2) Another.\n// BEGIN 3.2\nint three;\n// END 3.2\n"
    "int behind();\n";
const std::string readers =
    "int given();\n"
    "// TODO(3.1) One line.\n// BEGIN 3.1\nWORKBOOK_TODO(3.1);\n// END 3.1\n"
    "int changed();\n"
    "// TODO(3.2) Another.\n// BEGIN 3.2\nint mine;\n\nint more;\n// END 3.2\n"
    "int behind();\n";

/// The report of an address at a line of the book, as the reader of this file sees it. `number`: the chapter that runs.
simt::Report reported(const std::string& own, int line, int number = 3) {
  const TemporaryFolder folder;
  folder.write("solutions/03_tiles/kernel.cu", solution);
  folder.write("chapters/03_tiles/kernel.cu", own);
  Workspace workspace;
  workspace.book.root = folder.path();
  book::Chapter chapter;
  chapter.number = number;
  chapter.slug = "tiles";
  Plan plan;
  plan.chapter = &chapter;
  plan.tree = readers_tree(workspace, chapter);
  simt::Report report{simt::Mistake::outside_global, "", "", "check the index", {}, {}, {}, 1};
  report.side.source = {"solutions/03_tiles/kernel.cu", line, "", ""};
  std::vector<simt::Report> reports{report};
  name_locations(workspace, plan, reports);
  return reports[0];
}
/// The location that the reader sees.
simt::SourceLine named(const std::string& own, int line) {
  return reported(own, line).side.source;
}

}  // namespace

TEST_CASE("a given line is named where the reader's file has it") {
  for (const auto& [line, theirs] : {std::pair{1, 1}, {12, 13}}) {
    CHECK(named(readers, line).file == "chapters/03_tiles/kernel.cu");
    CHECK(named(readers, line).line == theirs);
    CHECK(named(readers, line).known_as.empty());
  }
}

TEST_CASE("a given line that the reader has changed, and a line of an exercise, are the book's") {
  CHECK(named(readers, 7).known_as == "the book's 03_tiles/kernel.cu:7, outside your region");
  CHECK(named(readers, 5).known_as == "the book's 3.1");
  CHECK(named("", 12).known_as == "the book's 03_tiles/kernel.cu:12, outside your region");
}

TEST_CASE("every line of a file that only the reader has is the reader's") {
  for (const int line : {4, 7, 12}) {
    CHECK(named(solution, line).file == "chapters/03_tiles/kernel.cu");
    CHECK(named(solution, line).line == line);
  }
}

TEST_CASE("a line of an earlier chapter's given file is named in that chapter") {
  const simt::SourceLine line = reported(solution, 7, 4).side.source;
  CHECK(line.file == "chapters/03_tiles/kernel.cu");
  CHECK(line.line == 7);
}

TEST_CASE("an invalid address in a given line is explained by the reader's code") {
  CHECK(reported(readers, 1).advice.starts_with("this line is given code: check what your code passes to it"));
  CHECK(reported(readers, 5).advice.starts_with("this line is given code"));  // another exercise, as the book has it
  CHECK(reported(solution, 4).advice == "check the index");
}
