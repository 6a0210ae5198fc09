// From verdicts to points and reports, field by field: what counts is their fields, never what is written in them.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <regex>
#include <set>

#include "common/grading/points.hpp"
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

const book::Book& the_book() {
  static const book::Book book = book::load_book(WORKBOOK_SOURCE);
  return book;
}

/// 2.1 and 2.3, the chapter, and a bar.
Assignment assignment() {
  Assignment made = make_assignment(the_book(), {"2.1", "2.3"}, {});
  made.title = "Online softmax";
  made.bars.push_back({2, "extra memory does not grow with N", 1});
  return made;
}

CountedTest counted(const std::string& exercise, const std::string& test, Result result, bool hidden = false) {
  Verdict verdict;
  verdict.chapter = "02_online_softmax";
  verdict.exercise = exercise;
  verdict.test = test;
  verdict.backend = Backend::cpu;
  verdict.result = result;
  verdict.hidden = hidden;
  return {verdict, item_of(assignment(), 2, verdict)};
}

/// Every public test of what is graded, passed.
std::vector<CountedTest> all_passed() {
  std::vector<CountedTest> tests;
  const book::Chapter& chapter = *the_book().find(2);
  for (const book::Exercise& exercise : chapter.exercises) {
    if (!assignment().is_open(exercise.id)) continue;
    for (const std::string& test : exercise.tests) tests.push_back(counted(exercise.id, test, Result::passed));
  }
  for (const std::string& test : chapter.whole_tests) tests.push_back(counted(judge::kWhole, test, Result::passed));
  return tests;
}

const GradedItem& item(const std::vector<GradedItem>& items, const std::string& id) {
  const auto found = std::ranges::find(items, id, &GradedItem::id);
  REQUIRE(found != items.end());
  return *found;
}

std::vector<GradedItem> points_of(const std::vector<CountedTest>& tests) {
  return give_points(assignment(), the_book(), tests);
}

/// What a hostile program may have printed.
const std::string kNasty = "\x1b[31mred\x1b[0m ]]> </failure> ``` \xff\xfe \x01 | <script>\nsecond line";

/// A submission in which everything has happened, with these words wherever words may stand.
GradedSubmission submission(const std::string& words, bool with_hidden = true) {
  GradedSubmission graded;
  graded.student = "an\"na<&>";
  graded.assignment = assignment().title;
  graded.notes = {"a note with \x1b[1mescapes\x1b[0m"};
  graded.verified_on = {"the CPU (GNU 12.2.0)"};
  graded.isolation = {{"on", true}};
  graded.leaderboard = true;
  graded.tests = all_passed();
  std::size_t at = 0;
  for (const Result result : {Result::failed, Result::crashed, Result::timed_out, Result::blocked, Result::skipped})
    graded.tests[at++].verdict.result = result;
  for (const Result result : judge::kResults) {
    if (with_hidden)
      graded.tests.push_back(counted("2.1", fmt::format("hidden {}", name(result)), result, /*hidden=*/true));
    graded.tests.push_back(counted("2.3", fmt::format("more {}", name(result)), result));
  }
  int number = 0;
  for (auto& [verdict, of] : graded.tests) {
    // A hidden test's words are marked: they must be nowhere.
    const std::string marked = verdict.hidden ? "SECRET " + words : words;
    verdict.message = marked;
    verdict.place = {"chapters/x.cpp", 3};
    verdict.reports.push_back(simt::Report{});
    verdict.reports.back().what = marked;
    verdict.observations.push_back({});
    if (verdict.result == Result::failed) verdict.cause = Cause{fmt::format("mistake-{}", number++), words, marked};
    verdict.seconds = number == 1 ? NAN : 0.25;
  }
  graded.items = points_of(graded.tests);
  graded.seconds = INFINITY;
  return graded;
}

/// A text with the words taken out, so that two that differ in nothing else are equal.
std::string without(const std::string& text, const std::string& words) {
  std::string result = text;
  for (std::size_t at = result.find(words); at != std::string::npos; at = result.find(words, at))
    result.replace(at, words.size(), "WORDS");
  return result;
}

bool same(const GradedItem& a, const GradedItem& b) {
  return a.kind == b.kind && a.id == b.id && a.chapter == b.chapter && a.points == b.points &&
         a.max_points == b.max_points && a.result == b.result && a.has_hidden == b.has_hidden &&
         a.public_passed == b.public_passed;
}

}  // namespace

TEST_CASE("all tests passed is all points; one that failed costs its exercise and the chapter") {
  std::vector<CountedTest> tests = all_passed();
  for (const GradedItem& all : points_of(tests)) {
    INFO(all.id);
    CHECK(all.points == all.max_points);
    CHECK(all.result == Result::passed);
    CHECK(all.public_passed);
    CHECK(!all.has_hidden);
  }
  REQUIRE(tests[0].verdict.exercise == "2.1");
  tests[0].verdict.result = Result::timed_out;
  const std::vector<GradedItem> items = points_of(tests);
  CHECK(item(items, "2.1").points == 0);
  CHECK(item(items, "2.1").result == Result::timed_out);
  CHECK(item(items, "2.3").points == item(items, "2.3").max_points);
  CHECK(item(items, "chapter 2").points == 0);
  CHECK(item(items, "chapter 2").result == Result::timed_out);
  CHECK(item(items, "bar 1").points == 1);
}

TEST_CASE("a public test that never ran has timed out, one that is skipped everywhere gives nothing") {
  std::vector<CountedTest> tests = all_passed();
  const CountedTest first = tests.front();
  tests.erase(tests.begin());
  CHECK(item(points_of(tests), "2.1").result == Result::timed_out);
  CHECK(item(points_of(tests), "2.1").points == 0);
  tests.push_back(first);
  tests.back().verdict.result = Result::skipped;
  CHECK(item(points_of(tests), "2.1").points == 0);
  // Skipped on one backend, passed on another.
  tests.push_back(first);
  tests.back().verdict.backend = Backend::sim;
  CHECK(item(points_of(tests), "2.1").points == 3);
  // Skipped because, as its worker says, a backend cannot run it.
  tests[tests.size() - 2].verdict.unavailable = true;
  CHECK(item(points_of(tests), "2.1").points == 0);
}

TEST_CASE("a bar's test counts only for the bar, and a hidden test for its exercise") {
  std::vector<CountedTest> tests = all_passed();
  const auto bar = std::ranges::find(tests, "bar 1", &CountedTest::item);
  REQUIRE(bar != tests.end());
  bar->verdict.result = Result::failed;
  const std::vector<GradedItem> items = points_of(tests);
  CHECK(item(items, "bar 1").points == 0);
  CHECK(item(items, "bar 1").result == Result::failed);
  for (const char* id : {"2.1", "2.3", "chapter 2"}) CHECK(item(items, id).points == item(items, id).max_points);

  tests = all_passed();
  tests.push_back(counted("2.3", "other scores", Result::failed, /*hidden=*/true));
  const GradedItem hidden = item(points_of(tests), "2.3");
  CHECK(hidden.points == 0);
  CHECK(hidden.has_hidden);
  CHECK(hidden.public_passed);
  // A name of its own: a hidden test is no stand-in for the public one of that name.
  tests = all_passed();
  const std::string name = tests.front().verdict.test;
  tests.erase(tests.begin());
  tests.push_back(counted("2.1", name, Result::passed, /*hidden=*/true));
  CHECK(item(points_of(tests), "2.1").points == 0);
}

TEST_CASE("the texts of verdicts change no result, no points and nothing that is hidden") {
  const GradedSubmission plain = submission("plain words");
  const std::string hidden_message = "a hidden test: its message is not shown";
  for (const std::string words :
       {"passed", ": your output equals that mistake to 3e-7", "the hidden tests came to an end",
        "the book's own test program ended early:", "all tests together took longer than 600 seconds, or not",
        "race: a report of the simulator, or another", "xq zzy", "TODO", "hidden", "(the same as above)"}) {
    INFO(words);
    GradedSubmission scrambled = submission(words);
    REQUIRE(scrambled.items.size() == plain.items.size());
    for (std::size_t i = 0; i < plain.items.size(); ++i) CHECK(same(scrambled.items[i], plain.items[i]));

    // Each test's fields in the record but for the words, as it is written and as it is read back.
    const json record = to_json(scrambled), expected = to_json(plain);
    CHECK(to_json(submission_from_json(record)) == record);
    CHECK_THROWS_AS(submission_from_json(json::object()), json::exception);
    REQUIRE(record.at("tests").size() == expected.at("tests").size());
    for (std::size_t i = 0; i < record.at("tests").size(); ++i) {
      json test = record.at("tests")[i], other = expected.at("tests")[i];
      if (test.at("hidden") == true) {
        CHECK(test.at("message") == (test.at("result") == "passed" ? "" : hidden_message));
        CHECK(test.at("place").is_null());
        CHECK(test.at("reports").empty());
        CHECK(test.at("trials").empty());
        if (!test.at("cause").is_null()) {
          CHECK(test.at("cause").at("measure") == "");
          CHECK(test.at("cause").at("sentence") == words);
        }
      } else {
        CHECK(test.at("message") == words);
        CHECK(!test.at("place").is_null());
      }
      for (json* shown : {&test, &other}) {
        shown->erase("message");
        shown->erase("reports");
        if (!shown->at("cause").is_null()) shown->at("cause") = shown->at("cause").at("id");
      }
      CHECK(test == other);
    }
    for (const std::string& report :
         {record.dump(), gradescope_results(scrambled).dump(), junit_xml(scrambled), feedback_page(scrambled)}) {
      CHECK(!contains(report, "SECRET"));
    }

    // The reports in numbers.
    const json results = gradescope_results(scrambled), others = gradescope_results(plain);
    REQUIRE(results.at("tests").size() == others.at("tests").size());
    for (std::size_t i = 0; i < results.at("tests").size(); ++i) {
      for (const char* key : {"number", "score", "max_score", "status", "visibility", "tags", "extra_data"})
        CHECK(results.at("tests")[i].at(key) == others.at("tests")[i].at(key));
    }
    static const std::regex counts("<testsuite[^>]*>|type=\"[a-z ]*\"");
    const auto counted_in = [](const std::string& xml) {
      return std::vector<std::string>(std::sregex_token_iterator(xml.begin(), xml.end(), counts), {});
    };
    CHECK(counted_in(junit_xml(scrambled)) == counted_in(junit_xml(plain)));
    CHECK(class_table({scrambled}) == class_table({plain}));
    CHECK(std::ranges::count(class_summary({scrambled}), '\n') == std::ranges::count(class_summary({plain}), '\n'));
  }
}

TEST_CASE("a submission's texts change nothing else in the page") {
  const std::string one = "xq zzy", other = "wk bbu";
  CHECK(without(feedback_page(submission(one)), one) == without(feedback_page(submission(other)), other));
  CHECK(without(junit_xml(submission(one)), one) == without(junit_xml(submission(other)), other));
  CHECK(without(gradescope_results(submission(one)).dump(), one) ==
        without(gradescope_results(submission(other)).dump(), other));
  CHECK(without(class_summary({submission(one)}), one) == without(class_summary({submission(other)}), other));
}

TEST_CASE("tests of the student's code are items with the book's points") {
  GradedSubmission report;
  const book::Chapter& chapter = *the_book().find(2);
  std::vector<Verdict> verdicts;
  for (const CountedTest& test : all_passed()) verdicts.push_back(test.verdict);
  verdicts.front().result = Result::failed;
  add_tested(report, chapter, verdicts);
  REQUIRE(report.items.size() == 3);  // 2.2 has no test there
  CHECK(item(report.items, "2.1").points == 0);
  CHECK(item(report.items, "2.1").result == Result::failed);
  CHECK(item(report.items, "2.3").points == item(report.items, "2.3").max_points);
  CHECK(item(report.items, "chapter 2").max_points == 0);
  CHECK(report.tests.size() == verdicts.size());
}

namespace {

std::set<std::string> keys_of(const json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.insert(key);
  return keys;
}

bool is_valid(const std::string& xml) {
  const book::TemporaryFolder folder;
  folder.write("junit.xml", xml);
  const auto checked = worker::run_command(
      {"xmllint", "--noout", "--schema", WORKBOOK_SOURCE "/common/grading/junit.xsd", (folder / "junit.xml").string()});
  INFO(checked.output << xml);
  return checked.exit_code == 0;
}

}  // namespace

TEST_CASE("Gradescope's results.json has the documented fields, and nothing else at its top") {
  const GradedSubmission graded = submission(kNasty);
  const json results = gradescope_results(graded);
  CHECK(keys_of(results) == std::set<std::string>{"execution_time", "output", "output_format", "visibility",
                                                  "stdout_visibility", "tests", "leaderboard",
                                                  "extra_data"});  // no "score": the tests add up to it
  CHECK(results["execution_time"] == "inf");
  CHECK(results["output"].is_string());
  CHECK(results["output_format"] == "text");
  CHECK(results["visibility"] == "visible");
  CHECK(results["stdout_visibility"] == "hidden");
  CHECK(results["extra_data"]["isolation"]["on"] == true);
  double score = 0, max = 0;
  std::set<std::string> numbers;
  for (const json& entry : results["tests"]) {
    CHECK(keys_of(entry) == std::set<std::string>{"name", "number", "score", "max_score", "status", "output",
                                                  "output_format", "tags", "visibility", "extra_data"});
    CHECK(entry["name"].is_string());
    CHECK(numbers.insert(entry["number"].get<std::string>()).second);
    CHECK((entry["status"] == "passed" || entry["status"] == "failed"));
    CHECK(entry["output_format"] == "md");
    for (const json& tag : entry["tags"]) CHECK(tag.is_string());
    CHECK((entry["visibility"] == "after_published" || entry["visibility"] == "visible"));
    score += entry["score"].get<double>();
    max += entry["max_score"].get<double>();
  }
  CHECK(score == graded.points());
  CHECK(max == graded.max_points());
  REQUIRE(results["leaderboard"].size() == 1);
  CHECK(results["leaderboard"][0]["name"].is_string());
  CHECK(results["leaderboard"][0]["value"].is_number());
  CHECK(results["leaderboard"][0]["order"] == "desc");
  CHECK_NOTHROW(results.dump());  // strict: valid UTF-8 throughout
  CHECK(!contains(results.dump(), "\\u001b"));
}

TEST_CASE("without hidden tests, everything is visible with its points") {
  const json results = gradescope_results(submission(kNasty, /*with_hidden=*/false));
  REQUIRE(results["tests"].size() == 4);
  for (const json& entry : results["tests"]) CHECK(entry["visibility"] == "visible");
  CHECK(contains(results["output"], "of 11 points"));
}

TEST_CASE("an ungraded submission is still a result in every format") {
  GradedSubmission graded;
  graded.student = "anna";
  graded.assignment = "A";
  graded.problem = "the disk is full";
  const json results = gradescope_results(graded);
  CHECK(results["tests"].empty());
  CHECK(contains(results["output"], "the disk is full"));
  CHECK(contains(junit_xml(graded), "name=\"the submission can be graded\""));
  CHECK(contains(feedback_page(graded), "the disk is full"));
  CHECK(contains(class_table({graded, submission(kNasty)}), "anna,0,11,,,,,the disk is full"));
}

TEST_CASE("JUnit XML is valid against the schema, each result in its element") {
  const std::string xml = junit_xml(submission(kNasty));
  for (const char* element :
       {"<failure type=\"failed\"", "<failure type=\"todo\"", "<failure type=\"blocked\"", "<error type=\"crashed\"",
        "<error type=\"timed out\"", "<error type=\"not compiled\"", "<skipped message="})
    CHECK(contains(xml, element));
  CHECK(!contains(xml, "\x1b"));
  if (worker::find_program("xmllint").empty()) SKIP("xmllint is not here");
  GradedSubmission problem;
  problem.student = "b";
  problem.problem = "no <result>";
  for (const std::string& text : {xml, junit_xml(submission(kNasty, false)), junit_xml(problem)}) CHECK(is_valid(text));
  // The schema refuses what is not so.
  std::string broken = xml;
  CHECK(!is_valid(broken.replace(broken.find("type=\"todo\""), 11, "type=\"open\"")));
}

TEST_CASE("the student's page cannot be broken out of, and hidden tests say little") {
  GradedSubmission graded = submission(kNasty);
  const std::string page = feedback_page(graded);
  CHECK(contains(page, "````"));  // a longer fence than the text's
  CHECK(contains(page, "Likely cause: "));
  CHECK(contains(page, "(hidden)"));
  graded.hidden_results = "hidden";
  CHECK(contains(feedback_page(graded), "hidden tests: 1 of 8 passed"));
  CHECK(!contains(feedback_page(graded), "(hidden)"));
}

TEST_CASE("the class's summary counts a mistake once for each student") {
  std::vector<GradedSubmission> submissions(3, submission(kNasty));
  for (std::size_t i = 0; i < submissions.size(); ++i) {
    std::vector<CountedTest>& tests = submissions[i].tests;
    submissions[i].student = fmt::format("s{}", i);
    tests.clear();
    for (const Result result : {Result::failed, Result::failed, Result::crashed})
      tests.push_back(counted("2.1", "a test", i == 2 ? Result::todo : result));
    if (i == 2) continue;
    // One test may name more mistakes that fit than another: they are the same one.
    tests[0].verdict.cause = Cause{"no-scale", "the scale is missing", "your output …"};
    tests[1].verdict.cause = Cause{"no-scale", "the scale is missing, or the mask is", "your output …"};
  }
  const std::string text = class_summary(submissions);
  CHECK(contains(text, "| 2 | 2.1 | the scale is missing |"));
  CHECK(contains(text, "| 2 | 2.1 | crashed |"));
  CHECK(contains(text, "3 submissions"));
  CHECK(class_table(submissions) ==
        "student,points,of,2.1,2.3,chapter 2,bar 1,problem,path\n"
        "s0,1,11,0,0,0,1,,\ns1,1,11,0,0,0,1,,\ns2,1,11,0,0,0,1,,\n");
  CHECK(contains(class_plot(submissions, "/x/class.svg"), "set output '/x/class.svg'"));
}
