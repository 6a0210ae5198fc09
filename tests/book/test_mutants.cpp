#include "common/book/mutants.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook::book;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr const char* path = "tests/01_sums/wrong.diff";

const std::string wrong_solutions = R"(# Comments are ignored.

@@ 1.1 @@

Your code subtracts b;
it must add it.
-  return a + b;
+  return a - b;

-  return a + b;
+  return -b + a;

Your code adds b twice; it must add it once.
-  return a + b;
+  return a + b + b;

@@ 1.2 @@

Your code forgets b; it must multiply by it.
-  const int product = a * b;
+  const int product = a;
   return product;

@@ sums.cpp @@

Your code has the arguments in the other order.
-int add(int a, int b) {
+int add(int b, int a) {
)";

const std::string killed_by =
    "1.1/1\tfailed\tadding is commutative\titself\n1.2/1\tcrashed\tsums agree\trace\tsums agree\n";

std::vector<Mutant> load(const TemporaryBook& folder) {
  const Book book = folder.load();
  return load_mutants(book, book.chapters[0]);
}

using Texts = std::map<std::string, std::string>;

/// The solution's files with the mutant of this id applied, after one change to wrong.diff.
Texts applied(const std::string& id, std::string_view from = "", std::string_view to = "") {
  const TemporaryBook folder;
  folder.write(path, from.empty() ? wrong_solutions : replaced(wrong_solutions, from, to));
  const Book book = folder.load();
  for (const Mutant& mutant : load_mutants(book, book.chapters[0]))
    if (mutant.id == id) return apply(book, book.chapters[0], mutant);
  return {};
}

/// What loading says after one change to wrong.diff.
std::string error_with(std::string_view from, std::string_view to) {
  const TemporaryBook folder;
  folder.write(path, replaced(wrong_solutions, from, to));
  return message_of<ManifestError>([&] { load(folder); });
}

auto at_line(int line) {
  return StartsWith(fmt::format("tests/01_sums/wrong.diff:{}: ", line));
}

}  // namespace

TEST_CASE("mutants are read as they are written") {
  const TemporaryBook folder;
  folder.write(path, wrong_solutions);
  folder.write("tests/01_sums/killed_by.tsv", killed_by);
  const std::vector<Mutant> mutants = load(folder);
  REQUIRE(mutants.size() == 5);
  CHECK(mutants[0].id == "1.1/1");
  CHECK(mutants[0].exercise == "1.1");
  CHECK(mutants[0].sentence == "Your code subtracts b; it must add it.");
  CHECK(mutants[0].hunk.before == std::vector<std::string>{"  return a + b;"});
  CHECK(mutants[0].hunk.after == std::vector<std::string>{"  return a - b;"});
  CHECK(mutants[0].file == path);
  CHECK(mutants[0].line == 7);
  CHECK(mutants[0].killed.result == "failed");
  CHECK(mutants[0].killed.test == "adding is commutative");
  CHECK(mutants[0].killed.reported == kItself);
  CHECK(mutants[1].id == "1.1/2");
  CHECK(mutants[1].sentence == mutants[0].sentence);
  CHECK(mutants[1].killed.test.empty());
  CHECK(mutants[2].sentence == "Your code adds b twice; it must add it once.");
  CHECK(mutants[3].id == "1.2/1");
  CHECK(mutants[3].hunk.before.size() == 2);
  CHECK(mutants[3].hunk.after == std::vector<std::string>{"  const int product = a;", "  return product;"});
  CHECK(mutants[4].id == "sums.cpp/1");
  CHECK(mutants[4].exercise == kGivenCode);
}

TEST_CASE("the record of killed mutants is written as it is read") {
  const TemporaryBook folder;
  folder.write(path, wrong_solutions);
  folder.write("tests/01_sums/killed_by.tsv", killed_by);
  std::vector<Mutant> mutants = load(folder);
  std::erase_if(mutants, [](const Mutant& mutant) { return mutant.killed.test.empty(); });
  CHECK(killed_by_text(mutants) == killed_by);
}

TEST_CASE("a chapter without a file has no mutants") {
  CHECK(load(TemporaryBook()).empty());
}

TEST_CASE("a mutant that cannot be used is an error with its line") {
  CHECK_THAT(error_with("@@ 1.1 @@", "@@ 1.3 @@"), at_line(3) && ContainsSubstring("\"1.3\" is neither an exercise"));
  CHECK_THAT(error_with("@@ 1.1 @@\n", "\n"), at_line(5) && ContainsSubstring("before the first section"));
  CHECK_THAT(error_with("@@ 1.2 @@\n\nYour code forgets b; it must multiply by it.", "@@ 1.2 @@\n\n"),
             ContainsSubstring("without a sentence"));
  CHECK_THAT(error_with("+  return a - b;", "+  return a + b;"), ContainsSubstring("changes nothing"));
  CHECK_THAT(error_with("-  return a + b;\n+  return a - b;", "+  return a - b;"), ContainsSubstring("needs a line"));
}

TEST_CASE("a mutant changes its region and nothing else") {
  const Texts first = applied("1.1/1");
  REQUIRE(first.size() == 2);
  CHECK(first.at("sums.hpp") == sums_header);
  CHECK(first.at("sums.cpp") == replaced(sums_solution, "a + b", "a - b"));
  CHECK(applied("1.2/1").at("sums.cpp") == replaced(sums_solution, "a * b", "a"));
  const std::string both = "  const int product = a * b;\n  return product;\n";
  CHECK(applied("1.2/1", "+  const int product = a;\n   return", "-  return").at("sums.cpp") ==
        replaced(sums_solution, both, ""));
}

TEST_CASE("a mutant of given code changes text outside the regions") {
  const Texts texts = applied("sums.cpp/1");
  CHECK(texts.at("sums.hpp") == sums_header);
  CHECK(texts.at("sums.cpp") == replaced(sums_solution, "int add(int a, int b) {", "int add(int b, int a) {"));
  const auto error = [](std::string_view line) {
    return message_of<ManifestError>([&] { applied("sums.cpp/1", "-int add(int a, int b) {", line); });
  };
  CHECK_THAT(error("-  return product;"), at_line(27) && ContainsSubstring("0 times"));  // within a region
  CHECK_THAT(error("-}"), at_line(27) && ContainsSubstring("2 times"));
}

TEST_CASE("the lines that a mutant replaces are in its region exactly once") {
  const auto error = [](std::string_view line) {
    return message_of<ManifestError>([&] { applied("1.1/1", "-  return a + b;\n+  return a - b;", line); });
  };
  CHECK_THAT(error("-  return product;"),  // in another region
             at_line(7) && ContainsSubstring("1.1/1") && ContainsSubstring("0 times"));
  CHECK_THAT(error("-int twice(int a) { return 2 * a; }"), ContainsSubstring("0 times"));  // outside the regions
  CHECK_THAT(error("-return a + b;"), ContainsSubstring("0 times"));                       // without its indentation
}
