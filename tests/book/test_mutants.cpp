#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/book/mutants.hpp"
#include "tests/book/fixtures/temporary_book.hpp"

using namespace workbook::book;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

constexpr const char* path = "tests/01_sums/mutants.toml";

const std::string two_mutants = R"([[mutant]]
id = "1.1-minus"
title = "subtracts"
find = "a + b"
replace = "a - b"
test = "adding is commutative"
diagnosis = "no-plus"

[[mutant]]
id = "1.2-forgets-b"
title = "forgets b"
find = " * b"
replace = ""
test = "sums agree"
diagnosis = "unknown"
death = "crashed"
)";

std::vector<Mutant> load(const TemporaryBook& folder) {
  const Book book = folder.load();
  return load_mutants(book, book.chapters[0]);
}

/// What loading says after one change to the file.
std::string error_with(std::string_view from, std::string_view to) {
  const TemporaryBook folder;
  folder.write(path, replaced(two_mutants, from, to));
  return message_of<ManifestError>([&] { load(folder); });
}

auto at_line(int line) {
  return StartsWith(fmt::format("tests/01_sums/mutants.toml:{}: ", line));
}

}  // namespace

TEST_CASE("mutants are read as they are written") {
  const TemporaryBook folder;
  folder.write(path, two_mutants);
  const std::vector<Mutant> mutants = load(folder);
  REQUIRE(mutants.size() == 2);
  CHECK(mutants[0].id == "1.1-minus");
  CHECK(mutants[0].exercise == "1.1");
  CHECK(mutants[0].title == "subtracts");
  CHECK(mutants[0].find == "a + b");
  CHECK(mutants[0].replace == "a - b");
  CHECK(mutants[0].test == "adding is commutative");
  CHECK(mutants[0].diagnosis == "no-plus");
  CHECK(mutants[0].death == "failed");
  CHECK(mutants[0].file == path);
  CHECK(mutants[0].line == 1);
  CHECK(mutants[1].replace.empty());
  CHECK(mutants[1].death == "crashed");
  CHECK(mutants[1].line == 9);
}

TEST_CASE("a chapter without a file has no mutants") {
  CHECK(load(TemporaryBook()).empty());
}

TEST_CASE("a mutant that cannot be used is an error with its line") {
  CHECK_THAT(error_with("title = \"subtracts\"\n", ""), at_line(1) && ContainsSubstring("no key \"title\""));
  CHECK_THAT(error_with("replace = \"\"\n", ""), at_line(9) && ContainsSubstring("no key \"replace\""));
  CHECK_THAT(error_with("death =", "dead ="), at_line(16) && ContainsSubstring("unknown key \"dead\""));
  CHECK_THAT(error_with("[[mutant]]", "[[mutants]]"), at_line(1) && ContainsSubstring("mutants"));
  CHECK_THAT(error_with("find = \"a + b\"", "find = 1"), at_line(4) && ContainsSubstring("a string"));
  CHECK_THAT(error_with("find = \"a + b\"", "find = \"\""), at_line(4) && ContainsSubstring("empty"));
  CHECK_THAT(error_with("find = \"a + b\"", "find = \"a + b"), at_line(4));
  CHECK_THAT(error_with("\"a - b\"", "\"a + b\""), at_line(5) && ContainsSubstring("changes nothing"));
  CHECK_THAT(error_with("\"1.1-minus\"", "\"1.3-minus\""), at_line(2) && ContainsSubstring("1.3"));
  CHECK_THAT(error_with("\"sums agree\"", "\"sums agre\""), at_line(14) && ContainsSubstring("sums agre"));
  CHECK_THAT(error_with("\"crashed\"", "\"crash\""), at_line(16) && ContainsSubstring("timed out"));
  CHECK_THAT(error_with("\"1.1-minus\"", "\"minus\""), at_line(2) && ContainsSubstring("\"minus\" must begin"));
  CHECK_THAT(error_with("\"1.1-minus\"", "\"1.1-\""), at_line(2));
  CHECK_THAT(error_with("1.2-forgets-b", "1.1-minus"),
             at_line(10) && ContainsSubstring("given twice, first on line 1"));
}

TEST_CASE("a property counts only where a test of the exercise itself kills the mutant") {
  const TemporaryBook folder;
  folder.write(path, replaced(two_mutants, "\"no-plus\"", "\"no-plus\"\nproperty = \"sign\""));
  CHECK(load(folder)[0].property == "sign");
  CHECK(load(folder)[1].property.empty());
  CHECK_THAT(error_with("death = \"crashed\"", "property = \"sign\""),
             at_line(16) && ContainsSubstring("a test of exercise 1.2 itself"));
}

TEST_CASE("a mutant changes its region and nothing else") {
  const TemporaryBook folder;
  folder.write(path, two_mutants);
  const Book book = folder.load();
  const std::vector<Mutant> mutants = load_mutants(book, book.chapters[0]);
  const auto first = apply(book, book.chapters[0], mutants[0]);
  REQUIRE(first.size() == 2);
  CHECK(first.at("sums.hpp") == sums_header);
  CHECK(first.at("sums.cpp") == replaced(sums_solution, "a + b", "a - b"));
  const auto second = apply(book, book.chapters[0], mutants[1]);
  CHECK(second.at("sums.cpp") == replaced(sums_solution, "a * b", "a"));
}

TEST_CASE("a mutant of given code changes what lies outside the regions") {
  const std::string given = R"toml([[mutant]]
id = "given-sum"
title = "adds twice"
find = "FIND"
replace = "int add(int b, int a)"
test = "sums agree"
diagnosis = "unknown"
)toml";
  const auto texts = [&](const std::string& find) {
    const TemporaryBook folder;
    folder.write(path, replaced(given, "FIND", find));
    const Book book = folder.load();
    return apply(book, book.chapters[0], load_mutants(book, book.chapters[0])[0]);
  };
  const auto error = [&](const std::string& find) { return message_of<ManifestError>([&] { texts(find); }); };
  CHECK(texts("int add(int a, int b);").at("sums.hpp") ==
        replaced(sums_header, "int add(int a, int b);", "int add(int b, int a)"));
  CHECK(texts("int add(int a, int b);").at("sums.cpp") == sums_solution);
  CHECK(texts("int add(int a, int b) {").at("sums.cpp") ==
        replaced(sums_solution, "int add(int a, int b) {", "int add(int b, int a)"));
  CHECK_THAT(error("int add(int a, int b)"), at_line(1) && ContainsSubstring("2 times"));  // in two files
  CHECK_THAT(error("product"), at_line(1) && ContainsSubstring("0 times"));                // within a region
  CHECK_THAT(error("nowhere"), at_line(1) && ContainsSubstring("0 times in the given code"));

  const TemporaryBook folder;
  folder.write(path, replaced(given, "sums agree", "adding is commutative"));
  CHECK_THAT(message_of<ManifestError>([&] { load(folder); }), at_line(6) && ContainsSubstring("whole chapter"));
}

TEST_CASE("a mutant may span lines and may take all of them") {
  const TemporaryBook folder;
  const std::string lines = "  const int product = a * b;\n  return product;\n";
  folder.write(path, replaced(two_mutants, "find = \" * b\"", "find = \"\"\"\n" + lines + "\"\"\""));
  const Book book = folder.load();
  const auto texts = apply(book, book.chapters[0], load_mutants(book, book.chapters[0])[1]);
  CHECK(texts.at("sums.cpp") == replaced(sums_solution, lines, ""));
}

TEST_CASE("what a mutant finds must be in its region exactly once") {
  const auto error = [](const std::string& find) {
    const TemporaryBook folder;
    folder.write(path, replaced(two_mutants, "\" * b\"", fmt::format("\"{}\"", find)));
    const Book book = folder.load();
    const Mutant mutant = load_mutants(book, book.chapters[0])[1];
    return message_of<ManifestError>([&] { apply(book, book.chapters[0], mutant); });
  };
  CHECK_THAT(error("product"), at_line(9) && ContainsSubstring("1.2-forgets-b") && ContainsSubstring("2 times"));
  CHECK_THAT(error("a + b"), at_line(9) && ContainsSubstring("0 times"));  // in another region only
  CHECK_THAT(error("2 * a"), at_line(9) && ContainsSubstring("0 times"));  // outside the regions
  CHECK_THAT(error("STUB"), at_line(9) && ContainsSubstring("0 times"));
}
