#include "common/grading/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "common/grading/text.hpp"

namespace workbook::grading {
namespace {

using nlohmann::json;

constexpr std::array kResults{"passed",  "skipped",   "todo",         "blocked", "failed",
                              "crashed", "timed out", "not compiled", "rejected"};

/// Numbers that JSON cannot hold travel as texts, as everywhere in the book (notes/json.md).
json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}
double number_of(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const std::string text = value.get<std::string>();
  return text == "nan" ? std::nan("") : text == "inf" ? INFINITY : -INFINITY;
}

/// The item that a test belongs to: a bar of its own, its exercise, or its chapter.
bool belongs(const GradedTest& test, const GradedItem& item) {
  return test.chapter == item.chapter && test.exercise == (item.kind == "chapter" ? "whole" : item.id);
}

/// What may be said of a test. Of a hidden one: its likely cause, a sentence of the book's own, without any figure.
std::string message_of(const GradedTest& test) {
  if (!test.hidden) return test.message;
  return test.result == "passed" ? "" : "a hidden test: its message is not shown";
}
std::string cause_of(const GradedTest& test) {
  if (!test.hidden) return test.likely_cause;
  return test.likely_cause.substr(0, test.likely_cause.find(": your output"));
}

std::string tests_text(const GradedSubmission& graded, const GradedItem& item, bool with_hidden) {
  std::string text;
  std::set<std::string> shown;
  for (const GradedTest& test : graded.tests) {
    if (!belongs(test, item) || (test.hidden && !with_hidden)) continue;
    text += fmt::format("{}: {}{}\n", test.result, test.name, test.hidden ? " (hidden)" : "");
    if (test.result == "passed") continue;
    const std::string message = message_of(test);
    if (!message.empty()) text += (shown.insert(message).second ? message : "(the same as above)") + "\n";
    if (!cause_of(test).empty()) text += fmt::format("likely cause: {}\n", cause_of(test));
    if (!test.file.empty() && !test.hidden) text += fmt::format("look at: {}:{}\n", test.file, test.line);
    text += "\n";
  }
  return clean_text(text);
}

std::string backend_suffix(const GradedTest& test) {
  return test.backend == "cpu" ? "" : " [" + test.backend + "]";
}

}  // namespace

GradedTest graded_test(const judge::Verdict& verdict, int chapter) {
  GradedTest test{verdict.test,
                  verdict.exercise,
                  chapter,
                  name(verdict.backend),
                  verdict.hidden,
                  name(verdict.result),
                  verdict.message,
                  "",
                  verdict.cause_id(),
                  "",
                  0,
                  verdict.seconds};
  if (verdict.cause) test.likely_cause = verdict.cause->text();
  if (verdict.place) std::tie(test.file, test.line) = std::tie(verdict.place->file, verdict.place->line);
  return test;
}

int severity(const std::string& result) {
  const auto found = std::find(kResults.begin(), kResults.end(), result);
  return int(found - kResults.begin());
}

double GradedSubmission::points() const {
  double sum = 0;
  for (const GradedItem& item : items) sum += item.points;
  return sum;
}
double GradedSubmission::max_points() const {
  double sum = 0;
  for (const GradedItem& item : items) sum += item.max_points;
  return sum;
}

json to_json(const GradedSubmission& graded) {
  json items = json::array(), tests = json::array();
  for (const GradedItem& item : graded.items) {
    items.push_back({{"kind", item.kind},
                     {"id", item.id},
                     {"title", item.title},
                     {"chapter", item.chapter},
                     {"points", number(item.points)},
                     {"max_points", number(item.max_points)},
                     {"result", item.result},
                     {"has_hidden", item.has_hidden},
                     {"public_passed", item.public_passed}});
  }
  for (const GradedTest& test : graded.tests) {
    tests.push_back({{"name", clean_text(test.name)},
                     {"exercise", test.exercise},
                     {"chapter", test.chapter},
                     {"backend", test.backend},
                     {"hidden", test.hidden},
                     {"result", test.result},
                     {"message", clean_text(message_of(test))},
                     {"likely_cause", clean_text(cause_of(test))},
                     {"diagnosis", clean_text(test.diagnosis)},
                     {"file", clean_text(test.file)},
                     {"line", test.line},
                     {"seconds", number(test.seconds)}});
  }
  return {{"student", clean_text(graded.student)},
          {"assignment", clean_text(graded.assignment)},
          {"points", number(graded.points())},
          {"max_points", number(graded.max_points())},
          {"items", items},
          {"tests", tests},
          {"notes", graded.notes},
          {"verified_on", graded.verified_on},
          {"problem", clean_text(graded.problem)},
          {"hidden_results", graded.hidden_results},
          {"leaderboard", graded.leaderboard},
          {"isolation", graded.isolation},
          {"seconds", number(graded.seconds)},
          {"key", graded.key}};
}

GradedSubmission submission_from_json(const json& document) {
  GradedSubmission graded;
  graded.student = document.at("student");
  graded.assignment = document.at("assignment");
  graded.notes = document.at("notes").get<std::vector<std::string>>();
  graded.verified_on = document.at("verified_on").get<std::vector<std::string>>();
  graded.problem = document.at("problem");
  graded.hidden_results = document.at("hidden_results");
  graded.leaderboard = document.at("leaderboard");
  graded.isolation = document.at("isolation");
  graded.seconds = number_of(document.at("seconds"));
  graded.key = document.at("key");
  for (const json& item : document.at("items")) {
    graded.items.push_back({item.at("kind"), item.at("id"), item.at("title"), item.at("chapter"),
                            number_of(item.at("points")), number_of(item.at("max_points")), item.at("result"),
                            item.at("has_hidden"), item.at("public_passed")});
  }
  for (const json& test : document.at("tests")) {
    graded.tests.push_back({test.at("name"), test.at("exercise"), test.at("chapter"), test.at("backend"),
                            test.at("hidden"), test.at("result"), test.at("message"), test.at("likely_cause"),
                            test.at("diagnosis"), test.at("file"), test.at("line"), number_of(test.at("seconds"))});
  }
  return graded;
}

json gradescope_results(const GradedSubmission& graded) {
  std::string output = fmt::format("{} of {} points.", points_text(graded.points()), points_text(graded.max_points()));
  const bool any_hidden =
      std::any_of(graded.items.begin(), graded.items.end(), [](const GradedItem& item) { return item.has_hidden; });
  // With hidden tests the sum would tell before its time how they went.
  if (any_hidden && graded.hidden_results != "visible") output = "Public tests are below.";
  if (!graded.problem.empty()) output = "This submission could not be graded: " + graded.problem;
  for (const std::string& note : graded.notes) output += "\n" + note;
  if (!graded.verified_on.empty()) output += fmt::format("\nVerified on {}.", fmt::join(graded.verified_on, "; "));

  json tests = json::array();
  int number_of_item = 0;
  for (const GradedItem& item : graded.items) {
    const std::string name = item.kind == "exercise"  ? item.id + " " + item.title
                             : item.kind == "chapter" ? fmt::format("chapter {} as a whole", item.chapter)
                                                      : "bar: " + item.title;
    const auto add = [&](const std::string& title, const std::string& number, double score, double max, bool passed,
                         const std::string& text, const std::string& visibility) {
      tests.push_back({{"name", clean_text(title)},
                       {"number", number},
                       {"score", score},
                       {"max_score", max},
                       {"status", passed ? "passed" : "failed"},
                       {"output", text},
                       {"output_format", "text"},
                       {"tags", json::array({item.kind, fmt::format("chapter {}", item.chapter)})},
                       {"visibility", visibility},
                       {"extra_data", {{"id", item.id}, {"result", item.result}}}});
    };
    const std::string number = std::to_string(++number_of_item);
    const bool passed = item.points >= item.max_points && item.result == "passed";
    if (item.has_hidden && graded.hidden_results != "visible") {
      add(name + " (public tests)", number + ".1", 0, 0, item.public_passed, tests_text(graded, item, false),
          "visible");
      add(name, number + ".2", item.points, item.max_points, passed, tests_text(graded, item, true),
          graded.hidden_results);
    } else {
      add(name, number, item.points, item.max_points, passed, tests_text(graded, item, true), "visible");
    }
  }
  json results{{"execution_time", number(graded.seconds)},
               {"output", clean_text(output)},
               {"output_format", "text"},
               {"visibility", "visible"},
               {"stdout_visibility", "hidden"},
               {"tests", tests},
               {"extra_data",
                {{"isolation", graded.isolation},
                 {"verified_on", graded.verified_on},
                 {"assignment", clean_text(graded.assignment)},
                 {"graded", graded.problem.empty()}}}};
  if (graded.leaderboard) {
    int passed = 0;
    for (const GradedTest& test : graded.tests) passed += !test.hidden && test.result == "passed";
    results["leaderboard"] = json::array({{{"name", "public tests passed"}, {"value", passed}, {"order", "desc"}}});
  }
  return results;
}

std::string junit_xml(const GradedSubmission& graded) {
  const auto attribute = [](const std::string& text) {
    std::string value = xml_text(text, 300);
    std::replace(value.begin(), value.end(), '\n', ' ');
    return value;
  };
  struct Counts {
    int tests = 0, failures = 0, errors = 0, skipped = 0;
    double seconds = 0;
  };
  const auto is_error = [](const GradedTest& test) {
    return test.result == "crashed" || test.result == "timed out" || test.result == "not compiled" ||
           test.result == "rejected";
  };
  const auto count = [&](Counts& counts, const GradedTest& test) {
    ++counts.tests;
    counts.seconds += std::isfinite(test.seconds) ? test.seconds : 0;
    counts.skipped += test.result == "skipped";
    counts.errors += is_error(test);
    counts.failures += test.result != "passed" && test.result != "skipped" && !is_error(test);
  };
  const auto counts_text = [](const Counts& c) {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"", c.tests, c.failures,
                       c.errors, c.skipped, c.seconds);
  };

  Counts all;
  std::string suites;
  for (const GradedItem& item : graded.items) {
    Counts counts;
    std::string cases;
    for (const GradedTest& test : graded.tests) {
      if (!belongs(test, item)) continue;
      count(counts, test);
      cases += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"",
                           attribute(fmt::format("{}.{}", graded.student, item.id)),
                           attribute(test.name + backend_suffix(test) + (test.hidden ? " (hidden)" : "")),
                           std::isfinite(test.seconds) ? test.seconds : 0);
      if (test.result == "passed") {
        cases += "/>\n";
        continue;
      }
      std::string text = message_of(test);
      if (!cause_of(test).empty()) text += "\nlikely cause: " + cause_of(test);
      const std::string first = text.substr(0, text.find('\n'));
      if (test.result == "skipped") {
        cases += fmt::format(">\n      <skipped message=\"{}\"/>\n    </testcase>\n", attribute(first));
      } else {
        const char* element = is_error(test) ? "error" : "failure";
        cases += fmt::format(">\n      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n    </testcase>\n", element,
                             attribute(test.result), attribute(first), xml_text(text));
      }
    }
    suites += fmt::format("  <testsuite name=\"{}\" {}>\n    <properties>\n", attribute(item.id + " " + item.title),
                          counts_text(counts));
    suites += fmt::format(
        "      <property name=\"points\" value=\"{}\"/>\n      <property name=\"max_points\" "
        "value=\"{}\"/>\n    </properties>\n{}  </testsuite>\n",
        points_text(item.points), points_text(item.max_points), cases);
    all.tests += counts.tests;
    all.failures += counts.failures;
    all.errors += counts.errors;
    all.skipped += counts.skipped;
    all.seconds += counts.seconds;
  }
  if (!graded.problem.empty()) {
    ++all.tests;
    ++all.errors;
    suites += fmt::format(
        "  <testsuite name=\"grading\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\" "
        "time=\"0.000\">\n    <testcase classname=\"{}\" name=\"the submission can be graded\" "
        "time=\"0.000\">\n      <error type=\"not graded\" message=\"{}\">{}</error>\n    "
        "</testcase>\n  </testsuite>\n",
        attribute(graded.student), attribute(graded.problem), xml_text(graded.problem));
  }
  return fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{}\" {}>\n{}</testsuites>\n",
                     attribute(graded.assignment), counts_text(all), suites);
}

std::string feedback_page(const GradedSubmission& graded) {
  std::string text =
      fmt::format("# {}\n\n**{}**: {} of {} points\n\n", markdown_line(graded.assignment),
                  markdown_line(graded.student), points_text(graded.points()), points_text(graded.max_points()));
  if (!graded.problem.empty()) {
    return text + "This submission could not be graded:\n\n" + markdown_block(graded.problem);
  }
  text += "| | | result | points |\n|---|---|---|---|\n";
  for (const GradedItem& item : graded.items) {
    text += fmt::format("| {} | {} | {} | {} of {} |\n", markdown_line(item.id), markdown_line(item.title),
                        markdown_line(item.result), points_text(item.points), points_text(item.max_points));
  }
  text += "\n";
  for (const std::string& note : graded.notes) text += fmt::format("- {}\n", markdown_line(note));
  if (!graded.notes.empty()) text += "\n";
  for (const GradedItem& item : graded.items) {
    text += fmt::format("## {}: {}\n\n", markdown_line(item.id), markdown_line(item.title));
    int hidden = 0, hidden_passed = 0;
    std::set<std::string> shown;
    for (const GradedTest& test : graded.tests) {
      if (!belongs(test, item)) continue;
      if (test.hidden) {
        ++hidden;
        hidden_passed += test.result == "passed";
        if (graded.hidden_results == "hidden") continue;
      }
      text += fmt::format("- {}: {}{}{}\n", markdown_line(test.result), markdown_line(test.name),
                          markdown_line(backend_suffix(test)), test.hidden ? " (hidden)" : "");
      if (test.result == "passed") continue;
      const std::string message = message_of(test);
      if (!message.empty() && !test.hidden && test.result != "todo" && test.result != "blocked") {
        text += "\n" + (shown.insert(message).second ? markdown_block(message) : "The same message as above.\n");
      } else if (test.result == "blocked" && !test.hidden) {
        text += "  " + markdown_line(message) + "\n";
      }
      if (!cause_of(test).empty()) text += fmt::format("\nLikely cause: {}\n", markdown_line(cause_of(test)));
      if (!test.file.empty() && !test.hidden) {
        text += fmt::format("\nLook at `{}`, line {}.\n", clean_text(test.file), test.line);
      }
      text += "\n";
    }
    if (hidden > 0 && graded.hidden_results == "hidden") {
      text += fmt::format("- hidden tests: {} of {} passed\n", hidden_passed, hidden);
    }
    text += "\n";
  }
  if (!graded.verified_on.empty()) {
    text += fmt::format("Verified on {}.\n", markdown_line(fmt::format("{}", fmt::join(graded.verified_on, "; "))));
  }
  return text;
}

std::string csv_header(const GradedSubmission& any) {
  std::string header = "student,points,of";
  for (const GradedItem& item : any.items) header += fmt::format(",{}", csv_cell(item.id));
  return header + ",problem\n";
}

std::string csv_row(const GradedSubmission& graded) {
  std::string row =
      fmt::format("{},{},{}", csv_cell(graded.student), points_text(graded.points()), points_text(graded.max_points()));
  for (const GradedItem& item : graded.items) row += fmt::format(",{}", points_text(item.points));
  return fmt::format("{},{}\n", row, csv_cell(graded.problem));
}

}  // namespace workbook::grading
