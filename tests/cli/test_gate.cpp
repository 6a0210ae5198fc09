// `./workbook check` fails for each kind of inconsistency, with a message that names the location.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "common/book/files.hpp"
#include "common/worker/command.hpp"
#include "tests/cli/schema.hpp"
#include "tests/cli/workbook_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;

namespace {

const std::string solution = "solutions/01_naive_attention/naive_attention.cpp";
const std::string manifest = "chapters/01_naive_attention/chapter.toml";
const std::string lesson = "chapters/01_naive_attention/README.md";
const std::string wrong = "tests/01_naive_attention/wrong.diff";

/// One wrong solution of chapter 1, with these scores in place of the solution's, and none of chapter 2. `test`: the
/// one that is recorded to fail.
void only_wrong(const WorkbookCopy& book, const std::string& scores, const std::string& now,
                const std::string& test = "scores are scaled once") {
  const auto line = [](const std::string& text) {
    return fmt::format("      S(i, j) = j < visible ? {} : minus_infinity;\n", text);
  };
  book.write(wrong, "# One.\n\n@@ 1.1 @@\n\nYour code is wrong.\n-" + line(scores) + "+" + line(now));
  book.write("tests/01_naive_attention/killed_by.tsv", "1.1/1\tfailed\t" + test + "\titself\n");
  book.write("tests/02_online_softmax/wrong.diff", "");
  book.write("tests/02_online_softmax/killed_by.tsv", "");
}

/// Checks that the gate fails with `message` at `file` and `line`.
void expect_failure(const WorkbookCopy& book, const std::string& gate, const std::string& file, int line,
                    const std::string& message) {
  const Ran ran = book.run({"check", "--gate", gate});
  const std::string said = ran.out + ran.err;
  INFO(said);
  CHECK(ran.exit_code != 0);
  CHECK_FALSE(ran.timed_out);
  CHECK(contains(said, fmt::format("{}:{}: ", file, line)));
  CHECK(contains(said, message));
}

/// The line after the last one, where a test appends text.
int lines_in(const WorkbookCopy& book, const std::string& file) {
  return occurrences(book.read(file), "\n");
}

}  // namespace

TEST_CASE("a fresh book passes the gates that need no build") {
  const WorkbookCopy book;
  const Ran ran = book.run({"check", "--gate", "stubs", "--gate", "order"});
  INFO(ran.out);
  CHECK(ran.exit_code == 0);
  CHECK(contains(ran.out, "0 failed"));
}

TEST_CASE("a chapter includes given files of the chapters that it uses") {
  const WorkbookCopy book;
  const std::string second = "solutions/02_online_softmax/online_softmax.cpp";
  const auto expect = [&](const std::string& file, const std::string& message) {
    const std::string include = "#include \"01_naive_attention/" + file + "\"";
    book.edit(second, "namespace ch02 {", include + "\nnamespace ch02 {");
    if (!message.empty()) expect_failure(book, "order", second, book.line_of(second, include), message);
    if (message.empty()) CHECK(book.run({"check", "--gate", "order"}).exit_code == 0);
    book.edit(second, include + "\n", "");
  };
  expect("naive_attention.hpp", "`uses` of its chapter.toml does not name 01_naive_attention");
  book.edit("chapters/02_online_softmax/chapter.toml", "number = 2\n", "number = 2\nuses = [\"01_naive_attention\"]\n");
  expect("naive_attention.hpp", "");
  expect("naive_attention.cpp", "naive_attention.cpp, which contains exercise 1.1; use given files only");
}

TEST_CASE("the gate fails for a solution that changed without new stubs") {
  const WorkbookCopy book;
  book.edit(solution, "namespace ch01 {", "// A new remark.\nnamespace ch01 {");
  expect_failure(book, "stubs", "chapters/01_naive_attention/naive_attention.cpp",
                 book.line_of(solution, "// A new remark."), "the solution has changed since");
}

TEST_CASE("the gate fails for an outdated, a missing and an unused picture") {
  if (worker::find_program("node").empty()) SKIP("Node is not installed");
  const WorkbookCopy book;
  const std::string picture = "chapters/02_online_softmax/pictures/softmax.svg";
  const auto expect = [&](int exit_code, const std::string& message) {
    const Ran ran = book.run({"check", "--gate", "pictures"});
    INFO(ran.out << ran.err);
    CHECK(ran.exit_code == exit_code);
    CHECK(contains(ran.out, message));
  };
  expect(0, "0 failed");
  book.edit(picture, ">maximum m<", ">the maximum<");
  expect(1, picture + ": it is not what the code says by now");
  CHECK(book.run({"pictures"}).exit_code == 0);
  expect(0, "0 failed");
  book.edit("chapters/02_online_softmax/pictures.toml", "file = \"softmax\"", "file = \"other\"");
  expect(1, picture + ": no pictures.toml requests it");
  expect(1, "chapters/02_online_softmax/pictures/other.svg: missing");
  expect_schema(book, "pictures", {book.run({"pictures", "--check", "--json"}).document()});
}

TEST_CASE("the gate fails for an unclosed marker") {
  const WorkbookCopy book;
  book.edit(solution, "  // END 1.2\n", "");
  expect_failure(book, "stubs", solution, book.line_of(solution, "// BEGIN 1.3"), "region 1.2, which began on line");
}

TEST_CASE("the gate fails for a repeated id") {
  const WorkbookCopy book;
  std::string text = book.read(solution);
  for (const char* marker : {"// TODO(1.2)", "// BEGIN 1.2", "// END 1.2"}) {
    std::string again = marker;
    again.replace(again.find("1.2"), 3, "1.1");
    text.replace(text.find(marker), again.size(), again);
  }
  book.write(solution, text);
  const std::size_t second = text.rfind("// TODO(1.1)");
  expect_failure(book, "stubs", solution, occurrences(text.substr(0, second), "\n") + 1, "1.1");
}

TEST_CASE("the gate fails for an exercise without a hint") {
  const WorkbookCopy book;
  std::string text = book.read(manifest);
  const std::size_t hints = text.find("hints = ["), end = text.find("\n]", hints);
  book.write(manifest, text.replace(hints, end + 2 - hints, "hints = []"));
  expect_failure(book, "stubs", manifest, book.line_of(manifest, "hints = []"), "hints");
}

TEST_CASE("the gate fails for an exercise whose test does not exist, and for a test that is not named") {
  const WorkbookCopy book;
  book.edit(manifest, "\"scores are scaled once\"", "\"scores are scaled twice\"");
  const int line = book.line_of(manifest, "[[exercise]]");
  expect_failure(book, "solutions", manifest, line, "names the test \"scores are scaled twice\", which does not exist");
  expect_failure(book, "solutions", manifest, line, "the test \"scores are scaled once\" of 1.1 is not named there");
}

TEST_CASE("the gate fails for a wrong solution that passes, no longer matches, or fails another test") {
  const WorkbookCopy book;
  const auto expect = [&](const std::string& said) {
    expect_failure(book, "mutants", wrong, book.line_of(wrong, "-   "), said);
  };
  only_wrong(book, "scale * dot", "dot * scale");
  expect("passes all tests of its exercise");
  only_wrong(book, "scale * product", "product");
  expect("occur 0 times");
  only_wrong(book, "scale * dot", "dot", "all columns of Q and K count");
  expect("recorded in killed_by.tsv: failed \"all columns of Q and K count\"");
}

TEST_CASE("a new wrong solution needs no more than a sentence and its lines: the gate finds the test that it fails") {
  const WorkbookCopy book;
  only_wrong(book, "scale * dot", "dot");
  book.write("tests/01_naive_attention/killed_by.tsv", "");
  const Ran ran = book.run({"check", "--gate", "mutants", "--chapter", "1"});
  INFO(ran.out);
  CHECK(ran.exit_code == 1);
  const std::string copy = "if these results are right: cp ";
  const std::size_t at = ran.out.find(copy);
  REQUIRE(at != std::string::npos);
  const std::size_t begin = at + copy.size(), end = ran.out.find(" tests/01_naive_attention/killed_by.tsv", begin);
  const std::string written = ran.out.substr(begin, end - begin);
  book.write("tests/01_naive_attention/killed_by.tsv", book::read_file(written));
  CHECK(book.run({"check", "--gate", "mutants", "--chapter", "1"}).exit_code == 0);
}

TEST_CASE("with a chapter given, only its solutions, stubs and mutants are looked at") {
  const WorkbookCopy book;
  only_wrong(book, "scale * product", "product");  // of chapter 1, and it matches nothing
  book.edit("chapters/01_naive_attention/naive_attention.cpp", "namespace ch01 {", "// Mine.\nnamespace ch01 {");
  const std::vector<std::string> gates{"--gate", "stubs", "--gate", "mutants"};
  const auto check = [&](const std::string& chapter) {
    std::vector<std::string> arguments{"check", "--chapter", chapter};
    arguments.insert(arguments.end(), gates.begin(), gates.end());
    return book.run(arguments);
  };
  const Ran first = check("1");
  CHECK(first.exit_code == 1);
  CHECK(contains(first.out, "occur 0 times"));
  CHECK(contains(first.out, "differs from the stub"));
  const Ran second = check("2");
  INFO(second.out);
  CHECK(second.exit_code == 0);
  CHECK(contains(second.out, "ok     stubs"));
  const Ran none = check("99");
  CHECK(none.exit_code == 2);
}

TEST_CASE("the gate fails for a line of C++ in a lesson that is compiled nowhere") {
  const WorkbookCopy book;
  book.write(lesson, book.read(lesson) + "\n```cpp\nconst int nowhere = 1;\n```\n");
  expect_failure(book, "lessons", lesson, lines_in(book, lesson) - 1, "is in no file that the build compiles");
}

TEST_CASE("the gate fails for a link that leads nowhere") {
  const WorkbookCopy book;
  book.write(lesson, book.read(lesson) + "\nSee [this](../nowhere.md).\n");
  expect_failure(book, "lessons", lesson, lines_in(book, lesson), "the link leads nowhere: ../nowhere.md");
}

TEST_CASE("the gate fails for a picture that its lesson does not show") {
  const WorkbookCopy book;
  book.edit(lesson, "](pictures/roofline.svg)", "](pictures/memory.svg)");
  expect_failure(book, "lessons", lesson, 1, "the picture pictures/roofline.svg is not shown");
}

TEST_CASE("the gate fails for a lesson whose first exercise is late, or missing") {
  const WorkbookCopy book;
  const std::string text = book.read(lesson);
  std::string words = "\n";
  for (int i = 0; i < 1000; ++i) words += i % 20 == 19 ? "word\n" : "word ";
  book.write(lesson, text.substr(0, text.find('\n')) + words + text.substr(text.find('\n')));
  expect_failure(book, "lessons", lesson, 1, "words precede exercise 1.1, at most 800 may");
  book.write(lesson, text);
  book.edit(lesson, "### 1.1 ", "### One ");
  expect_failure(book, "lessons", lesson, 1, "no heading begins with exercise 1.1");
}

TEST_CASE("the gate fails for an exercise without a why") {
  const WorkbookCopy book;
  book.edit("chapters/01_naive_attention/chapter.toml", "why = \"Subtracting", "# \"Subtracting");
  expect_failure(book, "lessons", lesson, 1, "exercise 1.2 has no why");
}

TEST_CASE("the gate fails for a command that names a test or an exercise that is not there") {
  const WorkbookCopy book;
  book.write(lesson, book.read(lesson) + "\n`./workbook test 1.9`\n`./workbook test 1 --only \"nothing\"`\n");
  expect_failure(book, "lessons", lesson, lines_in(book, lesson) - 1, "there is no chapter or exercise 1.9");
  expect_failure(book, "lessons", lesson, lines_in(book, lesson), "there is no test \"nothing\"");
}

TEST_CASE("the gate fails for a figure that is not in the file that it is from") {
  const WorkbookCopy book;
  const std::string table =
      "\n<!-- figures: notes/speed_log.md -->\n| 17 rows | 987654321 |\n<!-- end of figures -->\n";
  book.write(lesson, book.read(lesson) + table);
  expect_failure(book, "lessons", lesson, lines_in(book, lesson) - 1, "the figure 987654321 is not in the file");
}

TEST_CASE("a reader's work is an error of the gate in continuous integration only") {
  const WorkbookCopy book;
  book.fill_in("1.1", "  S(0, 0) = 41;\n");
  const std::string work = book.read("chapters/01_naive_attention/naive_attention.cpp");
  const Ran at_home = book.run({"check", "--gate", "stubs"});
  CHECK(at_home.exit_code == 0);
  CHECK(contains(at_home.out, "1 with your work"));
  const Ran in_ci = book.run({"check", "--gate", "stubs"}, {.environment = {{"CI", "true"}}, .folder = {}});
  CHECK(in_ci.exit_code == 1);
  CHECK(contains(in_ci.out, "chapters/01_naive_attention/naive_attention.cpp:"));
  CHECK(contains(in_ci.out, "a region is filled in"));
  CHECK(book.read("chapters/01_naive_attention/naive_attention.cpp") == work);
}

TEST_CASE("a change outside the regions of a reader's file is drift") {
  const WorkbookCopy book;
  book.edit("chapters/01_naive_attention/naive_attention.cpp", "namespace ch01 {", "// Mine.\nnamespace ch01 {");
  expect_failure(book, "stubs", "chapters/01_naive_attention/naive_attention.cpp",
                 book.line_of("chapters/01_naive_attention/naive_attention.cpp", "// Mine."),
                 "differs from the stub outside the exercises");
}
