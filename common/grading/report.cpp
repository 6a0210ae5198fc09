#include "common/grading/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "common/grading/text.hpp"

namespace workbook::grading {
namespace {

using judge::number_json;
using judge::Result;
using judge::Verdict;
using nlohmann::json;

/// An item's tests, in their order, as they may be shown.
std::vector<Verdict> tests_of(const GradedSubmission& graded, const GradedItem& item) {
  std::vector<Verdict> tests;
  for (const CountedTest& test : graded.tests) {
    if (test.item == item.id) tests.push_back(shown(test.verdict));
  }
  return tests;
}

/// The likely cause, or nothing.
std::string cause_of(const Verdict& test) {
  return test.cause ? test.cause->text() : "";
}

// ---- results.json ----

std::string tests_text(const std::vector<Verdict>& tests, bool with_hidden) {
  std::string text;
  std::set<std::string> said;
  for (const Verdict& test : tests) {
    if (test.hidden && !with_hidden) continue;
    text += fmt::format("{}: {}{}\n", name(test.result), test.test, test.hidden ? " (hidden)" : "");
    if (test.result == Result::passed) continue;
    if (!test.message.empty()) {
      text += (said.insert(test.message).second ? test.message : "(the same as above)") + "\n";
    }
    if (!cause_of(test).empty()) text += fmt::format("likely cause: {}\n", cause_of(test));
    if (test.place) text += fmt::format("look at: {}:{}\n", test.place->file, test.place->line);
    text += "\n";
  }
  return clean_text(text);
}

/// An item in Gradescope's "tests": one entry, or two where students see its hidden tests later than the others.
void add_entries(const GradedSubmission& graded, const GradedItem& item, const std::string& number, json& entries) {
  const std::string title = item.kind == ItemKind::exercise  ? item.id + " " + item.title
                            : item.kind == ItemKind::chapter ? fmt::format("chapter {} as a whole", item.chapter)
                                                             : "bar: " + item.title;
  const auto add = [&](const std::string& what, const std::string& part, bool all, bool passed,
                       const std::string& visibility) {
    entries.push_back({{"name", clean_text(title + what)},
                       {"number", number + part},
                       {"score", all ? item.points : 0},
                       {"max_score", all ? item.max_points : 0},
                       {"status", passed ? "passed" : "failed"},
                       {"output", tests_text(tests_of(graded, item), all)},
                       {"output_format", "text"},
                       {"tags", json::array({name(item.kind), fmt::format("chapter {}", item.chapter)})},
                       {"visibility", visibility},
                       {"extra_data", {{"id", item.id}, {"result", judge::name(item.result)}}}});
  };
  const bool passed = item.points >= item.max_points && item.result == Result::passed;
  if (!item.has_hidden || graded.hidden_results == "visible") return add("", "", true, passed, "visible");
  add(" (public tests)", ".1", false, item.public_passed, "visible");
  add("", ".2", true, passed, graded.hidden_results);
}

// ---- JUnit ----

/// Text for an attribute: one line of it.
std::string attribute(const std::string& text) {
  std::string value = xml_text(text, 300);
  std::replace(value.begin(), value.end(), '\n', ' ');
  return value;
}

double finite(double seconds) {
  return std::isfinite(seconds) ? seconds : 0;
}

std::string with_backend(const Verdict& test) {
  return test.backend == Backend::cpu ? "" : fmt::format(" [{}]", name(test.backend));
}

/// The attributes of a suite that count its cases.
struct SuiteCounts {
  int tests = 0, failures = 0, errors = 0, skipped = 0;
  double seconds = 0;

  static bool is_error(Result result) { return result >= Result::crashed; }
  void add(const Verdict& test) {
    ++tests;
    seconds += finite(test.seconds);
    skipped += test.result == Result::skipped;
    errors += is_error(test.result);
    failures += test.result != Result::passed && test.result != Result::skipped && !is_error(test.result);
  }
  void add(const SuiteCounts& other) {
    tests += other.tests;
    failures += other.failures;
    errors += other.errors;
    skipped += other.skipped;
    seconds += other.seconds;
  }
  std::string text() const {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"", tests, failures,
                       errors, skipped, seconds);
  }
};

std::string junit_case(const std::string& class_name, const Verdict& test) {
  const std::string opening =
      fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"", attribute(class_name),
                  attribute(test.test + with_backend(test) + (test.hidden ? " (hidden)" : "")), finite(test.seconds));
  if (test.result == Result::passed) return opening + "/>\n";
  std::string text = test.message;
  if (!cause_of(test).empty()) text += "\nlikely cause: " + cause_of(test);
  const std::string first = text.substr(0, text.find('\n'));
  if (test.result == Result::skipped) {
    return fmt::format("{}>\n      <skipped message=\"{}\"/>\n    </testcase>\n", opening, attribute(first));
  }
  return fmt::format("{0}>\n      <{1} type=\"{2}\" message=\"{3}\">{4}</{1}>\n    </testcase>\n", opening,
                     SuiteCounts::is_error(test.result) ? "error" : "failure", attribute(name(test.result)),
                     attribute(first), xml_text(text));
}

/// The suite of a submission that could not be graded.
std::string junit_problem(const GradedSubmission& graded) {
  return fmt::format(
      "  <testsuite name=\"grading\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\" "
      "time=\"0.000\">\n    <testcase classname=\"{}\" name=\"the submission can be graded\" "
      "time=\"0.000\">\n      <error type=\"not graded\" message=\"{}\">{}</error>\n    "
      "</testcase>\n  </testsuite>\n",
      attribute(graded.student), attribute(graded.problem), xml_text(graded.problem));
}

// ---- the student's page ----

/// What the page says of a test that has not passed.
std::string feedback_on(const Verdict& test) {
  std::string text;
  if (test.result == Result::passed) return text;
  // Of a hidden test the result has said it all.
  if (!test.hidden && test.result == Result::blocked) {
    text += "  " + markdown_line(test.message) + "\n";
  } else if (!test.hidden && test.result != Result::todo && !test.message.empty()) {
    text += "\n" + markdown_block(test.message);
  }
  if (!cause_of(test).empty()) text += fmt::format("\nLikely cause: {}\n", markdown_line(cause_of(test)));
  if (test.place) text += fmt::format("\nLook at `{}`, line {}.\n", clean_text(test.place->file), test.place->line);
  return text + "\n";
}

std::string feedback_section(const GradedSubmission& graded, const GradedItem& item) {
  std::string text = fmt::format("## {}: {}\n\n", markdown_line(item.id), markdown_line(item.title));
  int hidden = 0, hidden_passed = 0;
  std::string said;  // of the last test: tests of which it is the same stand above it together
  for (const Verdict& test : tests_of(graded, item)) {
    hidden += test.hidden;
    hidden_passed += test.hidden && test.result == Result::passed;
    if (test.hidden && graded.hidden_results == "hidden") continue;
    const std::string feedback = feedback_on(test);
    if (feedback != said) text += said;
    said = feedback;
    text += fmt::format("- {}: {}{}{}\n", markdown_line(name(test.result)), markdown_line(test.test),
                        markdown_line(with_backend(test)), test.hidden ? " (hidden)" : "");
  }
  text += said;
  if (hidden > 0 && graded.hidden_results == "hidden") {
    text += fmt::format("- hidden tests: {} of {} passed\n", hidden_passed, hidden);
  }
  return text + "\n";
}

}  // namespace

json gradescope_results(const GradedSubmission& graded) {
  std::string output = fmt::format("{} of {} points.", points_text(graded.points()), points_text(graded.max_points()));
  // With hidden tests the sum would tell before its time how they went.
  const bool any_hidden = std::ranges::any_of(graded.items, &GradedItem::has_hidden);
  if (any_hidden && graded.hidden_results != "visible") output = "Public tests are below.";
  if (!graded.problem.empty()) output = "This submission could not be graded: " + graded.problem;
  for (const std::string& note : graded.notes) output += "\n" + note;
  if (!graded.verified_on.empty()) output += fmt::format("\nVerified on {}.", fmt::join(graded.verified_on, "; "));

  json entries = json::array();
  int number = 0;
  for (const GradedItem& item : graded.items) add_entries(graded, item, std::to_string(++number), entries);
  json results{{"execution_time", number_json(graded.seconds)},
               {"output", clean_text(output)},
               {"output_format", "text"},
               {"visibility", "visible"},
               {"stdout_visibility", "hidden"},
               {"tests", entries},
               {"extra_data",
                {{"isolation", graded.isolation},
                 {"verified_on", graded.verified_on},
                 {"assignment", clean_text(graded.assignment)},
                 {"graded", graded.problem.empty()}}}};
  if (graded.leaderboard) {
    const auto passed = std::ranges::count_if(graded.tests, [](const CountedTest& test) {
      return !test.verdict.hidden && test.verdict.result == Result::passed;
    });
    results["leaderboard"] = json::array({{{"name", "public tests passed"}, {"value", passed}, {"order", "desc"}}});
  }
  return results;
}

std::string junit_xml(const GradedSubmission& graded) {
  SuiteCounts all;
  std::string suites;
  for (const GradedItem& item : graded.items) {
    SuiteCounts counts;
    std::string cases;
    for (const Verdict& test : tests_of(graded, item)) {
      counts.add(test);
      cases += junit_case(fmt::format("{}.{}", graded.student, item.id), test);
    }
    suites += fmt::format("  <testsuite name=\"{}\" {}>\n    <properties>\n", attribute(item.id + " " + item.title),
                          counts.text());
    suites += fmt::format(
        "      <property name=\"points\" value=\"{}\"/>\n      <property name=\"max_points\" "
        "value=\"{}\"/>\n    </properties>\n{}  </testsuite>\n",
        points_text(item.points), points_text(item.max_points), cases);
    all.add(counts);
  }
  if (!graded.problem.empty()) {
    ++all.tests;
    ++all.errors;
    suites += junit_problem(graded);
  }
  return fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{}\" {}>\n{}</testsuites>\n",
                     attribute(graded.assignment), all.text(), suites);
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
    text +=
        fmt::format("| {} | {} | {} | {} of {} |\n", markdown_line(item.id), markdown_line(item.title),
                    markdown_line(judge::name(item.result)), points_text(item.points), points_text(item.max_points));
  }
  text += "\n";
  for (const std::string& note : graded.notes) text += fmt::format("- {}\n", markdown_line(note));
  if (!graded.notes.empty()) text += "\n";
  for (const GradedItem& item : graded.items) text += feedback_section(graded, item);
  if (!graded.verified_on.empty()) {
    text += fmt::format("Verified on {}.\n", markdown_line(fmt::format("{}", fmt::join(graded.verified_on, "; "))));
  }
  return text;
}

}  // namespace workbook::grading
