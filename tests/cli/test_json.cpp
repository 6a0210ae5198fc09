// Every --json document has exactly the keys and types listed in notes/json.md, and is the only text on stdout.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/cli/npy_files.hpp"
#include "tests/cli/schema.hpp"

using namespace workbook::test;
using nlohmann::json;

TEST_CASE("run --json follows notes/json.md") {
  const WorkbookCopy book;
  const std::string file = good_npy("q.npy", normal_tensor({1, 2, 8, 32}, 1));
  expect_schema(book, "run",
                {book.run({"run", "--json", "--seq", "64"}).document(),
                 book.run({"run", "--json", "--seq", "64", "--chapters"}).document(),
                 book.run({"run", "--json", "--q", file, "--k", file, "--v", file}).document()});
}

TEST_CASE("test --json follows notes/json.md: the same form for one run and for several") {
  const WorkbookCopy book;
  book.solve("1.3");
  book.edit(book.readers_file("1.3"), "O(i, c) += P(i, j) * V(j, c)", "O(i, c) = P(i, j) * V(j, c)");
  const json one = book.run({"test", "1.3", "--json"}).document();
  CHECK(one["runs"].size() == 1);
  const json all = book.run({"test", "--json"}).document();
  CHECK(all["runs"].size() == 2);  // chapters 1 and 2 on the CPU
  expect_schema(book, "test", {one, all});
}

TEST_CASE("check --json follows notes/json.md") {
  const WorkbookCopy book;
  // The first two wrong solutions of chapter 1, and none of chapter 2.
  const std::string wrong = "tests/01_naive_attention/wrong.diff", killed = "tests/01_naive_attention/killed_by.tsv";
  std::string text = book.read(wrong);
  std::size_t third = 0;
  for (int i = 0; i < 3; ++i) third = text.find("\nYour code ", third + 1);
  book.write(wrong, text.substr(0, third));
  text = book.read(killed);
  book.write(killed, text.substr(0, text.find("1.1/3")));
  book.write("tests/02_online_softmax/wrong.diff", "");
  book.write("tests/02_online_softmax/killed_by.tsv", "");
  const Ran ran = book.run({"check", "--json", "--gate", "mutants", "--gate", "stubs"});
  INFO(ran.out);
  CHECK(ran.exit_code == 0);
  const json document = ran.document();
  CHECK(document["mutants"].size() == 2);
  for (const json& mutant : document["mutants"]) {
    CHECK(mutant["killed"] == true);
    CHECK(mutant["diagnosis_right"] == true);
  }
  expect_schema(book, "check", {document});
}

TEST_CASE("status, hint, reset, stubs and doctor --json follow notes/json.md") {
  const WorkbookCopy book;
  expect_schema(book, "status", {book.run({"--json"}).document(), book.run({"status", "--json"}).document()});
  expect_schema(book, "hint", {book.run({"hint", "2.1", "--json"}).document()});
  expect_schema(book, "reset", {book.run({"reset", "2.1", "--json"}).document()});
  book.fill_in("1.1", "  S(0, 0) = 0;\n");
  expect_schema(book, "stubs",
                {book.run({"stubs", "--json"}).document(), book.run({"stubs", "--force", "--json"}).document()});
  expect_schema(book, "doctor", {book.run({"doctor", "--json"}).document()});
}
