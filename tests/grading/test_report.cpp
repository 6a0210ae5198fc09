// results.json, JUnit XML and the student's page, field by field.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <set>

#include "common/book/files.hpp"
#include "common/grading/report.hpp"
#include "common/grading/summary.hpp"
#include "common/worker/command.hpp"
#include "tests/book/fixtures/temporary_book.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::grading;
using judge::Cause, judge::Result, judge::Verdict;
using nlohmann::json;

namespace {

CountedTest test(const std::string& item, Result result, const std::string& message = "", bool hidden = false) {
  Verdict made;
  made.chapter = "02_online_softmax";
  made.exercise = item == "chapter 2" ? judge::kWhole : item;
  made.test = std::string("a test that ") + name(result);
  made.backend = Backend::cpu;
  made.result = result;
  made.message = message;
  made.hidden = hidden;
  made.place = {"chapters/x.cpp", 3};
  made.seconds = 0.25;
  return {made, item};
}

/// One of everything, and what a hostile program may have printed.
GradedSubmission everything(bool with_hidden = true) {
  GradedSubmission graded;
  graded.student = "an\"na<&>";
  graded.assignment = "A & B";
  const std::string nasty = "\x1b[31mred\x1b[0m ]]> </failure> ``` \xff\xfe \x01 | <script>\nsecond line";
  for (const Result result : judge::kResults)
    graded.tests.push_back(test("2.1", result, result == Result::passed ? "" : nasty));
  graded.tests.push_back(test("chapter 2", Result::failed, nasty));
  graded.tests.back().verdict.cause =
      Cause{"no-scale", "the scale is missing", "your output matches that mistake to 1e-7"};
  if (with_hidden) {
    graded.tests.push_back(test("2.1", Result::failed, "SECRET", true));
    graded.tests.back().verdict.cause = Cause{"no-scale", "the scale is missing", "your output SECRET"};
  }
  graded.tests.back().verdict.seconds = NAN;
  GradedItem exercise{ItemKind::exercise, "2.1", "A <title>", 2, 0, 3, Result::not_compiled, with_hidden, false};
  GradedItem whole{ItemKind::chapter, "chapter 2", "All of it", 2, 2, 2, Result::passed, false, true};
  graded.items = {exercise, whole};
  graded.notes = {"a note with \x1b[1mescapes\x1b[0m"};
  graded.verified_on = {"the CPU (GNU 12.2.0)"};
  graded.isolation = {{"on", true}};
  graded.seconds = INFINITY;
  graded.leaderboard = true;
  graded.key = "abc";
  return graded;
}

}  // namespace

TEST_CASE("Gradescope's results.json has the documented fields, and nothing else at its top") {
  const json results = gradescope_results(everything());
  std::set<std::string> keys;
  for (const auto& [key, value] : results.items()) keys.insert(key);
  CHECK(keys == std::set<std::string>{"execution_time", "output", "output_format", "visibility", "stdout_visibility",
                                      "tests", "leaderboard", "extra_data"});  // no "score": the tests add up to it
  CHECK(results["execution_time"] == "inf");
  CHECK(results["output"].is_string());
  CHECK(results["output_format"] == "text");
  CHECK(results["visibility"] == "visible");
  CHECK(results["stdout_visibility"] == "hidden");
  CHECK(results["extra_data"]["isolation"]["on"] == true);
  double score = 0, max = 0;
  std::set<std::string> numbers;
  for (const json& entry : results["tests"]) {
    std::set<std::string> fields;
    for (const auto& [key, value] : entry.items()) fields.insert(key);
    CHECK(fields == std::set<std::string>{"name", "number", "score", "max_score", "status", "output", "output_format",
                                          "tags", "visibility", "extra_data"});
    CHECK(entry["name"].is_string());
    CHECK(numbers.insert(entry["number"].get<std::string>()).second);
    CHECK(entry["score"].is_number());
    CHECK(entry["max_score"].is_number());
    CHECK((entry["status"] == "passed" || entry["status"] == "failed"));
    CHECK(entry["output_format"] == "md");
    for (const json& tag : entry["tags"]) CHECK(tag.is_string());
    CHECK(
        std::set<std::string>{"hidden", "after_due_date", "after_published", "visible"}.contains(entry["visibility"]));
    score += entry["score"].get<double>();
    max += entry["max_score"].get<double>();
  }
  CHECK(score == everything().points());
  CHECK(max == everything().max_points());
  REQUIRE(results["leaderboard"].size() == 1);
  CHECK(results["leaderboard"][0]["name"].is_string());
  CHECK(results["leaderboard"][0]["value"].is_number());
  CHECK(results["leaderboard"][0]["order"] == "desc");
  CHECK_NOTHROW(results.dump());  // strict: valid UTF-8 throughout
  CHECK(!contains(results.dump(), "\\u001b"));
  CHECK(!contains(results.dump(), "SECRET"));
}

TEST_CASE("without hidden tests, everything is visible with its points") {
  const json results = gradescope_results(everything(/*with_hidden=*/false));
  REQUIRE(results["tests"].size() == 2);
  for (const json& entry : results["tests"]) CHECK(entry["visibility"] == "visible");
  CHECK(contains(results["output"], "2 of 5 points"));
}

TEST_CASE("what could not be graded is still a result in every format") {
  GradedSubmission graded;
  graded.student = "anna";
  graded.assignment = "A";
  graded.problem = "the disk is full";
  const json results = gradescope_results(graded);
  CHECK(results["tests"].empty());
  CHECK(contains(results["output"], "the disk is full"));
  CHECK(contains(junit_xml(graded), "type=\"not graded\""));
  CHECK(contains(feedback_page(graded), "the disk is full"));
  CHECK(contains(class_table({graded, everything()}), "anna,0,5,,,the disk is full"));
}

TEST_CASE("JUnit XML is valid against the schema, each result in its element") {
  const std::string xml = junit_xml(everything());
  CHECK(contains(xml, "<failure type=\"failed\""));
  CHECK(contains(xml, "<failure type=\"todo\""));
  CHECK(contains(xml, "<failure type=\"blocked\""));
  CHECK(contains(xml, "<error type=\"crashed\""));
  CHECK(contains(xml, "<error type=\"timed out\""));
  CHECK(contains(xml, "<error type=\"not compiled\""));
  CHECK(contains(xml, "<skipped message="));
  CHECK(contains(xml, "tests=\"10\" failures=\"5\" errors=\"3\" skipped=\"1\""));
  CHECK(!contains(xml, "SECRET"));
  CHECK(!contains(xml, "\x1b"));
  if (worker::find_program("xmllint").empty()) SKIP("xmllint is not here");
  const book::TemporaryFolder folder;
  GradedSubmission problem;
  problem.student = "b";
  problem.problem = "no <result>";
  int number = 0;
  for (const std::string& text : {xml, junit_xml(everything(false)), junit_xml(problem)}) {
    const std::string name = fmt::format("{}.xml", ++number);
    folder.write(name, text);
    const auto checked =
        worker::run_command({"xmllint", "--noout", "--schema",
                             std::string(WORKBOOK_SOURCE) + "/common/grading/junit.xsd", (folder / name).string()});
    INFO(checked.output << text);
    CHECK(checked.exit_code == 0);
  }
  // The schema refuses what is not so.
  std::string broken = xml;
  broken.replace(broken.find("type=\"todo\""), 11, "type=\"open\"");
  folder.write("broken.xml", broken);
  CHECK(
      worker::run_command({"xmllint", "--noout", "--schema", std::string(WORKBOOK_SOURCE) + "/common/grading/junit.xsd",
                           (folder / "broken.xml").string()})
          .exit_code != 0);
}

TEST_CASE("the student's page cannot be broken out of, and hidden tests say little") {
  const std::string page = feedback_page(everything());
  CHECK(contains(page, "````"));  // a longer fence than the text's
  CHECK(!contains(page, "SECRET"));
  CHECK(contains(page, "Likely cause: the scale is missing"));
  CHECK(contains(page, "(hidden)"));
  GradedSubmission hidden = everything();
  hidden.hidden_results = "hidden";
  CHECK(contains(feedback_page(hidden), "hidden tests: 0 of 1 passed"));
  CHECK(!contains(feedback_page(hidden), "(hidden)"));
}

TEST_CASE("the class's summary counts a mistake once for each student") {
  std::vector<GradedSubmission> submissions;
  for (int i = 0; i < 3; ++i) {
    GradedSubmission graded = everything();
    graded.student = fmt::format("s{}", i);
    graded.tests = {test("2.1", Result::failed), test("2.1", Result::failed), test("2.1", Result::crashed)};
    // One test may name more mistakes that fit than another: they are the same one.
    graded.tests[0].verdict.cause = Cause{"no-scale", "the scale is missing", "your output …"};
    graded.tests[1].verdict.cause = Cause{"no-scale", "the scale is missing, or the mask is", "your output …"};
    if (i == 2) graded.tests = {test("2.1", Result::todo)};
    submissions.push_back(graded);
  }
  const std::string text = class_summary(submissions);
  CHECK(contains(text, "| 2 | 2.1 | the scale is missing |"));
  CHECK(contains(text, "| 2 | 2.1 | crashed |"));
  CHECK(contains(text, "3 submissions"));
  CHECK(class_table(submissions) ==
        "student,points,of,2.1,chapter 2,problem,path\ns0,2,5,0,2,,\ns1,2,5,0,2,,\ns2,2,5,0,2,,\n");
  CHECK(contains(class_plot(submissions, "/x/class.svg"), "set output '/x/class.svg'"));
}
