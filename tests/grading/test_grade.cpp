// `./workbook grade`: points and feedback for what students hand in.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "common/book/text.hpp"
#include "common/grading/archive.hpp"
#include "tests/cli/schema.hpp"
#include "tests/grading/grading_copy.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::test;
namespace fs = std::filesystem;
using nlohmann::json;

namespace {

std::string hidden_folder() {
  return std::string(WORKBOOK_SOURCE) + "/tests/grading/hidden";
}

/// The solution with one text of it replaced.
std::string wrong(const GradingCopy& copy, const std::string& from, const std::string& to) {
  std::string text = solved(copy.book());
  REQUIRE(occurrences(text, from) == 1);
  return text.replace(text.find(from), from.size(), to);
}

const char* kRescale = "    l *= std::exp(m - m_safe);\n";

}  // namespace

TEST_CASE("the solution gets every point, an untouched file none, a mistake costs its exercise and the chapter") {
  const GradingCopy copy;
  copy.submit("anna", solved(copy.book()));
  copy.submit("otto", untouched(copy.book()));
  copy.submit("mia", wrong(copy, kRescale, ""));
  const Ran ran = copy.grade();
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(contains(ran.out, "anna"));

  CHECK(copy.record("anna").at("points") == 10);
  CHECK(copy.record("anna").at("isolation").at("on") == true);
  CHECK(contains(copy.feedback("anna"), "10 of 10 points"));

  CHECK(copy.record("otto").at("points") == 0);
  CHECK(copy.item("otto", "2.1").at("result") == "todo");
  CHECK(contains(copy.feedback("otto"), "0 of 10 points"));
  CHECK(contains(copy.feedback("otto"), "todo: the state does not depend on the block size"));

  CHECK(copy.item("mia", "2.1").at("points") == 0);
  CHECK(copy.item("mia", "2.3").at("points") == 5);
  CHECK(copy.item("mia", "chapter 2").at("points") == 0);
  const std::string page = copy.feedback("mia");
  CHECK(contains(page, "expected  "));  // the located mismatch
  CHECK(contains(page, "Likely cause: Your code does not rescale l"));
  CHECK(contains(page, "`chapters/02_online_softmax/online_softmax.cpp`, line "));
  CHECK(contains(page, "Verified on the CPU"));

  const std::string table = book::read_file(copy.graded() / "class.csv");
  const auto path = [&](const char* student) { return (copy.submissions() / student).string(); };
  CHECK(table ==
        fmt::format("student,points,of,2.1,2.3,chapter 2,problem,path\nanna,10,10,3,5,2,,{}\nmia,5,10,0,5,0,,{}\n"
                    "otto,0,10,0,0,0,,{}\n",
                    path("anna"), path("mia"), path("otto")));
  const std::string summary = book::read_file(copy.graded() / "class.md");
  CHECK(contains(summary, "| 1 | 2.1 | Your code does not rescale l"));
  CHECK(contains(summary, "1 failed, 1 todo"));
}

TEST_CASE("hidden tests count, and say nothing but their name, result and likely cause") {
  const GradingCopy copy;
  copy.submit("anna", solved(copy.book()));
  // Right for the block sizes of the public tests; and it prints and throws what it is given.
  copy.submit("eve",
              wrong(copy, "  float m = minus_infinity;\n  float l = 0;\n",
                    "  if (block == 13) {\n    std::string all = \"SECRET\";\n    for (const float s : x) all += ' ' "
                    "+ std::to_string(s);\n    std::puts(all.c_str());\n    throw std::runtime_error(all);\n  }\n  "
                    "float m = minus_infinity;\n  float l = 0;\n"));
  std::string text = book::read_file(copy.submissions() / "eve" / kAnswerFile);
  text.insert(text.find("namespace ch02"), "#include <cstdio>\n#include <string>\n");
  copy.submit("eve", text);
  copy.submit("mia", wrong(copy, kRescale, ""));
  const Ran ran = copy.grade({"--hidden", hidden_folder()});
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(copy.record("anna").at("points") == 10);
  const json eve = copy.item("eve", "2.1");
  CHECK(eve.at("public_passed") == true);
  CHECK(eve.at("points") == 0);
  CHECK(eve.at("has_hidden") == true);
  for (const char* file : {"record.json", "results.json", "junit.xml", "feedback.md"}) {
    INFO(file);
    CHECK(!contains(book::read_file(copy.graded() / "eve" / file), "SECRET"));
  }
  CHECK(!contains(ran.out + ran.err, "SECRET"));
  CHECK(contains(copy.feedback("eve"), "hidden: the state of other scores"));

  // Until the hidden results are published, Gradescope shows the public ones alone, without points.
  const json results = json::parse(book::read_file(copy.graded() / "mia" / "results.json"));
  std::set<std::string> visibilities;
  double visible = 0;
  for (const json& test : results.at("tests")) {
    visibilities.insert(test.at("visibility").get<std::string>());
    if (test.at("visibility") == "visible") visible += test.at("max_score").get<double>();
  }
  CHECK(visibilities == std::set<std::string>{"visible", "after_published"});
  CHECK(visible == 0);
  CHECK(!contains(results.at("output").get<std::string>(), "points"));
}

TEST_CASE("an endless loop in one exercise costs no other exercise its points") {
  const GradingCopy copy;
  copy.submit("max", wrong(copy, kRescale, "    for (volatile bool always = true; always;) {}\n"));
  const Ran ran = copy.grade({"--total-time", "36"});
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(copy.item("max", "2.1").at("result") == "timed out");
  CHECK(copy.item("max", "2.3").at("points") == 5);
  CHECK(contains(copy.record("max").dump(), "the tests of 2.1 together took longer than 12 seconds"));
}

TEST_CASE("the compiler's output is cut between characters") {
  const GradingCopy copy;
  std::string name = "x";
  for (int i = 0; i < 2000; ++i) name += "\u00e9";
  copy.submit("anna", wrong(copy, kRescale, "    l *= " + name + ";\n"));
  copy.submit("bert", wrong(copy, kRescale, "    l *= x" + name + ";\n"));
  const Ran ran = copy.grade();
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  for (const char* student : {"anna", "bert"}) {
    CHECK(copy.item(student, "2.1").at("result") == "not compiled");
    CHECK(copy.item(student, "2.3").at("points") == 5);
  }
}

TEST_CASE("code that a formatter has wrapped to 80 columns earns its points") {
  const GradingCopy copy;
  std::string text = solved(copy.book());
  for (const char* id : {"2.1", "2.2", "2.3"})  // clang-format joins the line to the TODO before it
    text = book::replaced(text, fmt::format(" lines).\n  // BEGIN {}\n", id),
                          fmt::format("\n  // lines). BEGIN {}\n", id));
  REQUIRE(occurrences(text, "// BEGIN") == 0);
  copy.submit("anna", text);
  const Ran ran = copy.grade();
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(copy.record("anna").at("points") == 10);
}

TEST_CASE("a counted bar has separate points") {
  const GradingCopy copy(/*bar=*/true);
  copy.submit("anna", solved(copy.book()));
  // Right, with a workspace that grows with N.
  copy.submit("max", wrong(copy, "std::vector<float> S_values(rows * Bc), m(rows, minus_infinity), l(rows, 0.0f);",
                           "std::vector<float> S_values(rows * Bc), m(rows, minus_infinity), l(rows, 0.0f), more(8 * "
                           "std::size_t(Nk) * std::size_t(d));\n  more[0] = 1;"));
  const Ran ran = copy.grade();
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  CHECK(copy.record("anna").at("points") == 11);
  CHECK(copy.item("max", "bar 1").at("points") == 0);
  CHECK(copy.item("max", "bar 1").at("result") == "failed");
  CHECK(copy.item("max", "2.3").at("points") == 5);
  CHECK(copy.item("max", "chapter 2").at("points") == 2);
}

TEST_CASE("grading again reuses earlier results, unless something has changed") {
  const GradingCopy copy;
  copy.submit("anna", solved(copy.book()));
  copy.submit("otto", untouched(copy.book()));
  REQUIRE(copy.grade().exit_code == 0);
  const std::string table = book::read_file(copy.graded() / "class.csv");
  const Ran again = copy.grade();
  CHECK(occurrences(again.out, "graded before") == 2);
  CHECK(book::read_file(copy.graded() / "class.csv") == table);
  copy.submit("otto", solved(copy.book()));
  const Ran changed = copy.grade();
  CHECK(occurrences(changed.out, "graded before") == 1);
  CHECK(copy.record("otto").at("points") == 10);
  // A damaged record is ignored.
  book::write_file(copy.graded() / "otto" / "record.json", "{\"key\": ");
  CHECK(occurrences(copy.grade().out, "graded before") == 1);
  CHECK(occurrences(copy.grade({"--again"}).out, "graded before") == 0);
  // Whatever may change a result is a part of what it is known by.
  for (const char* option : {"--build-time", "--time-limit", "--total-time"}) {
    INFO(option);
    CHECK(occurrences(copy.grade({option, "50"}).out, "graded before") == 0);
  }
  CHECK(occurrences(copy.grade().out, "graded before") == 0);
  // So is one that was made with other tests.
  const std::string tests = "tests/02_online_softmax/test_online_softmax.cpp";
  copy.write(tests, copy.read(tests) + "// a change\n");
  CHECK(occurrences(copy.grade().out, "graded before") == 0);
}

TEST_CASE("grading that was killed goes on where it was, to the same table") {
  const GradingCopy copy;
  for (int i = 0; i < 6; ++i) {
    copy.submit(fmt::format("student{}", i), i % 2 == 0 ? solved(copy.book()) : wrong(copy, kRescale, ""));
  }
  std::vector<std::string> arguments{"grade", "--assignment", copy.assignment().string(), "--out",
                                     copy.graded().string()};
  for (const auto& entry : fs::directory_iterator(copy.submissions())) arguments.push_back(entry.path().string());
  {
    const WorkbookCopy::Background running(copy, arguments);
    REQUIRE(running.prints("[2/6]", 1, 300));
  }  // ended here
  int finished = 0;
  for (int i = 0; i < 6; ++i) finished += fs::exists(copy.graded() / fmt::format("student{}", i) / "record.json");
  CHECK(finished >= 2);
  CHECK(finished < 6);
  CHECK(!fs::exists(copy.graded() / "class.csv"));
  const Ran resumed = copy.grade();
  REQUIRE(resumed.exit_code == 0);
  CHECK(occurrences(resumed.out, "graded before") == finished);
  const std::string table = book::read_file(copy.graded() / "class.csv");
  fs::remove_all(copy.graded());
  REQUIRE(copy.grade().exit_code == 0);
  CHECK(book::read_file(copy.graded() / "class.csv") == table);
}

TEST_CASE("names of every kind are graded, each in its row of the table") {
  const GradingCopy copy;
  for (const char* name : {"M\u00fcller", "M\xfcller", "M\xf6ller", "class.csv", "x\n[1/1] anna 10 of 10"})
    copy.submit(name, untouched(copy.book()));
  fs::create_directory_symlink(copy.submissions() / "class.csv", copy.submissions() / "link");
  const Ran ran = copy.grade();
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  const std::string table = book::read_file(copy.graded() / "class.csv");
  INFO(table);
  CHECK(occurrences(table, "\n") == 7);
  CHECK(occurrences(ran.out, "\n") == 7);  // one each, and where it is written
  CHECK(contains(table, "submissions/M\u00fcller"));
  CHECK(contains(table, "submissions/M\ufffdller"));
  CHECK(!contains(ran.out, "\n[1/1] anna"));
}

TEST_CASE("the shards of a class together are the class") {
  const GradingCopy copy;
  for (int i = 0; i < 5; ++i) copy.submit(fmt::format("student{}", i), untouched(copy.book()));
  REQUIRE(copy.grade({"--shard", "1/2"}).exit_code == 0);
  CHECK(occurrences(book::read_file(copy.graded() / "class.csv"), "\n") == 4);  // the header and three of five
  REQUIRE(copy.grade({"--shard", "2/2"}).exit_code == 0);
  CHECK(occurrences(book::read_file(copy.graded() / "class.csv"), "\n") == 6);
}

TEST_CASE("bad input is refused before anything is graded") {
  const GradingCopy copy;
  copy.submit("anna", solved(copy.book()));
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& says) {
    const Ran ran = copy.run(arguments);
    INFO(ran.out << ran.err);
    CHECK(ran.exit_code == 2);
    CHECK(contains(ran.err, says));
    CHECK(!fs::exists(copy.graded()));
  };
  const std::string anna = (copy.submissions() / "anna").string(), assignment = copy.assignment().string();
  refused({"grade", anna}, "assignment");
  refused({"grade", "--assignment", assignment}, "needs submissions");
  refused({"grade", "--assignment", assignment, "no/such/folder"}, "this submission does not exist");
  for (const auto& [option, value] : {std::pair{"--shard", "3/2"}, {"--shard", "x"}, {"--hidden", "no/such"}})
    refused({"grade", "--assignment", assignment, option, value, anna}, fmt::format("{} {}", option, value));
  refused({"grade", "--assignment", assignment, "--backend", "abacus", anna}, "abacus");
  refused({"grade", "--assignment", assignment, "--jobs", "0", anna}, "--jobs");
  refused({"grade", "--assignment", scratch("no such").string(), anna}, "no such assignment");
  fs::create_directories(scratch("empty"));
  refused({"grade", "--assignment", scratch("empty").string(), anna}, "no such assignment");
  refused({"grade", "--assignment", assignment, "--out", assignment + "/graded", anna}, "nothing can be written there");
  const std::string bad = scratch("bad.toml").string();
  book::write_file(bad, "title = \"x\"\n\n[[exercise]]\nid = \"9.9\"\n");
  refused({"grade", "--assignment", bad, anna}, "bad.toml:4");
  book::write_file(
      bad, book::read_file(assignment) + "\n[[bar]]\nchapter = 2\ntest = \"extra memory grows with N\"\npoints = 1\n");
  refused({"grade", "--assignment", bad, anna}, "\"extra memory does not grow with N\"");
  refused({"grade", "--assignment", bad, "--hidden", hidden_folder(), anna}, "no hidden test");
}

TEST_CASE("without a working isolation, grade refuses, and --unsafe warns") {
  const GradingCopy copy;
  copy.submit("otto", untouched(copy.book()));
  // As for a user other than root where user namespaces may not mount: no isolation program.
  const fs::path bin = copy / "build/default/bin", real = fs::canonical(bin);
  fs::remove(bin);
  fs::create_directories(bin);
  for (const auto& entry : fs::directory_iterator(real)) {
    if (entry.path().filename() != "workbook_isolate") fs::create_symlink(entry.path(), bin / entry.path().filename());
  }
  const Ran refused = copy.grade();
  CHECK(refused.exit_code == 3);
  CHECK(contains(refused.err, "libseccomp"));
  CHECK(contains(refused.err, "--unsafe"));
  CHECK(!fs::exists(copy.graded()));
  const Ran unsafe = copy.grade({"--unsafe"});
  CHECK(unsafe.exit_code == 0);
  CHECK(contains(unsafe.out, "no isolation (--unsafe)"));
  CHECK(copy.record("otto").at("isolation").at("on") == false);
  fs::remove_all(bin);
}

TEST_CASE("if the book's solution does not pass, no submission is graded: the error is the grader's") {
  const GradingCopy copy;
  copy.submit("anna", solved(copy.book()));
  // As on a machine where what submissions need is missing: the solution fails a test there.
  copy.edit("solutions/02_online_softmax/online_softmax.cpp", kRescale, "");
  const Ran ran = copy.grade();
  INFO(ran.out << ran.err);
  CHECK(ran.exit_code == 3);
  CHECK(contains(ran.err, "the book's own solution of chapter 2 does not pass"));
  CHECK(contains(ran.err, "with inputs of WORKBOOK_SEED="));  // to run it again
  CHECK(!fs::exists(copy.graded() / "anna"));
  CHECK(!fs::exists(copy.graded() / "class.csv"));
}

TEST_CASE("release --json follows notes/json.md") {
  const GradingCopy copy;
  const Ran ran =
      copy.run({"release", "--exercises", "2.1,2.3", "--no-verify", "--json", "--out", scratch("a1").string()});
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  expect_schema(copy, "release", {ran.document()});
  CHECK(ran.document().at("verified") == false);
  CHECK(fs::exists(scratch("a1") / "assignment.toml"));
}

TEST_CASE("archives, single files and folders are all submissions") {
  const GradingCopy copy;
  fs::create_directories(copy.submissions());
  const std::map<std::string, grading::ArchivedFile> release{
      {"release/" + std::string(kAnswerFile), {solved(copy.book())}}, {"release/README.md", {"hello"}}};
  grading::write_archive(copy.submissions() / "anna.tar.gz", release);
  grading::write_archive(copy.submissions() / "bert.zip", release);
  book::write_file(copy.submissions() / "carl" / "online_softmax.cpp", solved(copy.book()));
  copy.submit("mia", wrong(copy, kRescale, ""));
  const Ran ran = copy.grade({"--jobs", "2", "--json"});
  INFO(ran.out << ran.err);
  REQUIRE(ran.exit_code == 0);
  const json document = ran.document();
  CHECK(document.at("submissions").size() == 4);
  expect_schema(copy, "grade", {document});
  CHECK(document.at("isolation").at("proved") == true);
  for (const json& graded : document.at("submissions")) {
    CHECK(graded.at("points") == (graded.at("student") == "mia" ? 5 : 10));  // her tests have a cause and a place
  }
}
