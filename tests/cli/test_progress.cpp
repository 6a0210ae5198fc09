// The verbs that preserve a reader's work and show its state: status, hint, reset, stubs, watch.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "tests/cli/workbook_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
using nlohmann::json;

namespace {

const std::string file_1 = "chapters/01_naive_attention/naive_attention.cpp";

std::string state_of(const WorkbookCopy& book, const std::string& id) {
  const json status = book.run({"status", "--json"}).document();
  for (const json& chapter : status["chapters"]) {
    for (const json& exercise : chapter["exercises"]) {
      if (exercise["id"] == id) return exercise["state"];
    }
  }
  return "not there";
}

}  // namespace

TEST_CASE("a fresh book shows two chapters, six open exercises, and the first one to solve") {
  const WorkbookCopy book;
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{}, {"status"}}) {
    const Ran ran = book.run(arguments);
    CHECK(ran.exit_code == 0);
    CHECK(contains(ran.out, "2 chapters, 6 exercises: 0 done, 6 to do"));
    CHECK(contains(ran.out, "read chapters/01_naive_attention/README.md"));
    CHECK(contains(ran.out, "fill in exercise 1.1 (" + file_1 + ":"));
    CHECK(contains(ran.out, "./workbook test 1"));
    for (const char* id : {"1.1", "1.2", "1.3"}) CHECK(contains(ran.out, id));
    CHECK(contains(ran.out, "3 exercises, not started"));  // chapter 2, in one line
    CHECK_FALSE(contains(ran.out, "2.1"));
  }
  CHECK_FALSE(book.exists(".workbook"));
}

TEST_CASE("an exercise without points is not suggested next") {
  const WorkbookCopy book;
  book.edit("chapters/01_naive_attention/chapter.toml",
            "slug = \"scaled_scores\"\ntitle = \"Scaled and masked scores\"\npoints = 2",
            "slug = \"scaled_scores\"\ntitle = \"Scaled and masked scores\"\npoints = 0");
  const Ran ran = book.run({});
  INFO(ran.out);
  CHECK(contains(ran.out, "0 done, 5 to do"));
  CHECK(contains(ran.out, "open, optional"));
  CHECK(contains(ran.out, "fill in exercise 1.2 (" + file_1 + ":"));
  CHECK(state_of(book, "1.1") == "open");
}

TEST_CASE("status follows the work: untested, passed, untested again, failed") {
  const WorkbookCopy book;
  book.solve("1.3");
  CHECK(state_of(book, "1.3") == "untested");
  book.run({"test", "1.3"});
  CHECK(state_of(book, "1.3") == "passing");
  book.edit(file_1, "O(i, c) += P(i, j) * V(j, c)", "O(i, c) += 2 * P(i, j) * V(j, c)");
  CHECK(state_of(book, "1.3") == "untested");
  book.run({"test", "1.3"});
  CHECK(state_of(book, "1.3") == "failing");
  const Ran ran = book.run({});
  CHECK(contains(ran.out, "1 failing"));
  // The progress file is a cache: if it is missing or damaged, only the test results are lost.
  for (const char* text : {"", "{", "[1, 2]", "\xff\xfe"}) {
    book.write(".workbook/progress.json", text);
    CHECK(state_of(book, "1.3") == "untested");
  }
}

TEST_CASE("hints grow one by one, stay at the last, and are remembered in the book") {
  const WorkbookCopy book;
  std::vector<std::size_t> shown;
  std::string last;
  for (int i = 0; i < 4; ++i) {
    const Ran ran = book.run({"hint", "1.1", "--json"});
    CHECK(ran.exit_code == 0);
    const json hint = ran.document();
    CHECK(hint["exercise"] == "1.1");
    CHECK(hint["of"] == 3);
    shown.push_back(hint["hints"].size());
    last = hint["hints"].back();
  }
  CHECK(shown == std::vector<std::size_t>{1, 2, 3, 3});
  CHECK(book.exists(".workbook/hints.json"));
  std::string shown_again = book.run({"hint", "1.1"}).out;
  std::ranges::replace(shown_again, '\n', ' ');  // lines are as wide as the terminal
  CHECK(contains(shown_again, "hint 3 of 3: " + last));

  const Ran other = book.run({"hint", "2.2"});
  CHECK(contains(other.out, "hint 1 of "));
  CHECK_FALSE(contains(other.out, "hint 2 of "));
  CHECK(contains(other.out, "next hint: ./workbook hint 2.2"));
  CHECK(contains(book.run({"hint", "2.1", "--all"}).out, "hint 2 of "));
}

TEST_CASE("reset restores one region, keeps a copy, and changes nothing else") {
  const WorkbookCopy book;
  const std::string stub = book.readers_body("1.1");
  book.fill_in("1.1", "  S(0, 0) = 41;\n");
  book.fill_in("1.2", "  lse[0] = 42;\n");
  book.edit(file_1, "void scaled_scores(", "// My own remark.\nvoid scaled_scores(");
  const std::string before = book.read(file_1);

  const Ran ran = book.run({"reset", "1.1", "--json"});
  CHECK(ran.exit_code == 0);
  const json document = ran.document();
  const std::string backup = document["backup"];
  CHECK(backup.starts_with(".workbook/backup/"));
  CHECK(book.read(backup) == before);
  CHECK(book.readers_body("1.1") == stub);
  CHECK(book.readers_body("1.2") == "  lse[0] = 42;\n");
  CHECK(contains(book.read(file_1), "// My own remark."));

  // A second one does not overwrite the first copy.
  const Ran again = book.run({"reset", "1.2"});
  CHECK(again.exit_code == 0);
  CHECK(contains(again.out, ".workbook/backup/"));
  CHECK(book.read(backup) == before);
}

TEST_CASE("stubs never writes over work: it lists it and exits with 1; --force keeps a copy") {
  const WorkbookCopy book;
  const Ran current = book.run({"stubs"});
  CHECK(current.exit_code == 0);
  CHECK(contains(current.out, "every stub is up to date"));

  book.fill_in("1.1", "  S(0, 0) = 41;\n");
  const std::string work = book.read(file_1);
  const Ran refused = book.run({"stubs"});
  CHECK(refused.exit_code == 1);
  CHECK(contains(refused.out, "kept, it contains your work: " + file_1));
  CHECK(contains(refused.out, "--force"));
  CHECK(book.read(file_1) == work);

  const Ran forced = book.run({"stubs", "--force", "--json"});
  CHECK(forced.exit_code == 0);
  const json document = forced.document();
  CHECK(document["written"] == json::array({file_1}));
  CHECK(document["kept"].empty());
  REQUIRE(document["backups"].size() == 1);
  CHECK(book.read(document["backups"][0]) == work);
  CHECK(state_of(book, "1.1") == "open");

  std::filesystem::remove(book / file_1);
  CHECK(book.run({"stubs", "--json"}).document()["written"] == json::array({file_1}));
}

TEST_CASE("watch tests again when a file is saved") {
  const WorkbookCopy book;
  const WorkbookCopy::Background watch(book, {"watch", "1", "--poll", "0.05"});
  INFO(watch.out());
  REQUIRE(watch.prints("watching chapters/01_naive_attention", 1, 60));
  CHECK(contains(watch.out(), "13 todo"));
  book.fill_in("1.3", "  for (float& o : O.elements()) o = 0;\n");
  REQUIRE(watch.prints("watching chapters/01_naive_attention", 2, 60));
  CHECK(contains(watch.out(), "2 failed"));
  CHECK(contains(watch.out(), "11 todo"));
}

TEST_CASE("watch takes an exercise too") {
  const WorkbookCopy book;
  book.solve("1.2");
  const WorkbookCopy::Background watch(book, {"watch", "1.2", "--poll", "0.05"});
  INFO(watch.out());
  REQUIRE(watch.prints("watching chapters/01_naive_attention", 1, 60));
  CHECK(contains(watch.out(), "7 passed"));
  CHECK_FALSE(contains(watch.out(), "todo"));
}
