// `./workbook solution`: the book's answer, once the reader's has passed.
#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "tests/cli/answers.hpp"
#include "tests/cli/schema.hpp"
#include "tests/cli/workbook_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;

TEST_CASE("the solution is shown once the exercise has passed, and before that only on demand") {
  const WorkbookCopy book;
  const Ran open = book.run({"solution", "1.1"});
  CHECK(open.exit_code == 1);
  CHECK(open.out.empty());
  CHECK(contains(open.err, "exercise 1.1 is still open: ./workbook hint 1.1 helps; --anyway"));

  const Ran anyway = book.run({"solution", "1.1", "--anyway"});
  CHECK(anyway.exit_code == 0);
  CHECK(contains(anyway.out, book.solution_file("1.1")));
  CHECK(contains(anyway.out, "S(i, j) = j < visible ? scale * dot : minus_infinity;"));

  book.fill_in("1.1", other_answers.at("1.1"));
  CHECK(contains(book.run({"solution", "1.1"}).err, "has not been tested since you changed it: ./workbook test 1.1"));
  REQUIRE(book.run({"test", "1.1"}).exit_code == 0);
  const Ran passed = book.run({"solution", "1.1"});
  CHECK(passed.exit_code == 0);
  CHECK(contains(passed.out, "// Keys outermost, the scale on the query, the mask afterwards."));
  CHECK(contains(passed.out, "S(i, j) = j < visible ? scale * dot : minus_infinity;"));
  CHECK_FALSE(contains(passed.out, "Counted"));  // an exercise of the CPU
  CHECK(contains(passed.out, "Why: "));
}

TEST_CASE("solution says why the book does it so, and as JSON follows notes/json.md") {
  const WorkbookCopy book;
  book.edit("chapters/01_naive_attention/chapter.toml", "why = \"Subtracting the maximum",
            "why = \"The maximum first.\"\n# \"");
  CHECK(contains(book.run({"solution", "1.2", "--anyway"}).out, "Why: The maximum first."));
  const json solution = book.run({"solution", "1.2", "--anyway", "--json"}).document();
  CHECK(solution["why"] == "The maximum first.");
  CHECK(solution["state"] == "open");
  CHECK(solution["book"]["line"] == book.line_of(book.solution_file("1.2"), "// BEGIN 1.2") + 1);
  expect_schema(book, "solution", {solution});
}

TEST_CASE("a book without solutions says so") {
  const WorkbookCopy book;
  std::filesystem::remove_all(book / "solutions");
  const Ran ran = book.run({"solution", "1.1", "--anyway"});
  CHECK(ran.exit_code == 3);
  CHECK(ran.out.empty());
  CHECK(contains(ran.err, "solution 1.1: this copy of the book does not include its solutions"));
}
