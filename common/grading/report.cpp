#include "common/grading/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "common/book/foreign_text.hpp"

namespace workbook::grading {
namespace {

using book::clean_text, book::xml_text, book::markdown_block, book::markdown_line, book::points_text;
using judge::number_json;
using judge::Result;
using judge::Verdict;
using nlohmann::json;

/// An item's tests in order, as shown() permits.
std::vector<Verdict> tests_of(const GradedSubmission& graded, const GradedItem& item, bool with_hidden = true) {
  std::vector<Verdict> tests;
  for (const CountedTest& test : graded.tests)
    if (test.item == item.id && (with_hidden || !test.verdict.hidden)) tests.push_back(shown(test.verdict));
  return tests;
}

/// The likely cause; empty without one.
std::string cause_of(const Verdict& test) {
  return test.cause && !test.cause->sentence.empty() ? test.cause->text() : "";
}

// ---- The student's page, in Markdown ----

/// The feedback on a test that has not passed.
std::string feedback_on(const Verdict& test) {
  std::string text;
  if (test.result == Result::passed) return text;
  // For a hidden test, only the result is shown.
  if (!test.hidden && test.result == Result::blocked) {
    text += "  " + markdown_line(test.message) + "\n";
  } else if (!test.hidden && test.result != Result::todo && !test.message.empty()) {
    text += "\n" + markdown_block(test.message);
  }
  if (!cause_of(test).empty()) text += fmt::format("\nLikely cause: {}\n", markdown_line(cause_of(test)));
  // A compiler's message has its own locations.
  if (test.place && test.result != Result::not_compiled)
    text += fmt::format("\nSee `{}`, line {}.\n", clean_text(test.place->file), test.place->line);
  return text + "\n";
}

/// The explanations on a page so far: a cause, or the whole text without one, and the item with the explanation.
using Explained = std::map<std::string, std::string>;

/// Lists an item's tests with result, name and feedback. Feedback is given in full for the first test with each cause,
/// and for the first test without a cause.
std::string explanation(std::vector<Verdict> tests, const std::string& item, Explained& explained) {
  // If outputs are wrong, counters may be wrong for the same reason, so causes from counters are dropped.
  if (std::ranges::any_of(tests, [](const Verdict& test) { return test.cause && !test.cause->of_cost; }))
    for (Verdict& test : tests)
      if (test.cause && test.cause->of_cost) test.cause.reset();
  const auto not_compiled = [](const Verdict& test) { return test.result == Result::not_compiled; };
  if (tests.size() > 1 && std::ranges::all_of(tests, not_compiled)) {
    const auto [first, is_new] = explained.emplace(feedback_on(tests[0]), item);
    return fmt::format("- not compiled, so none of its {} tests could run{}\n", tests.size(),
                       is_new ? "" : fmt::format(" (as in {})", first->second)) +
           (is_new ? feedback_on(tests[0]) : "");
  }
  std::string text;
  std::set<Result> in_full;  // results without a cause that were explained in full
  const bool several = std::ranges::any_of(tests, [&](const auto& test) { return test.backend != tests[0].backend; });
  for (const Verdict& test : tests) {
    std::string feedback = feedback_on(test), reference;
    // A hidden test's explanation is shorter, so it has a separate key.
    const std::string what = cause_of(test).empty() ? feedback : test.cause->id + (test.hidden ? " (hidden)" : "");
    const auto [first, is_new] = explained.emplace(what, item);
    if (!is_new && !feedback.empty()) {
      feedback.clear();
      if (test.result != Result::todo)
        reference = first->second == item ? " (as above)" : fmt::format(" (as in {})", first->second);
    } else if (cause_of(test).empty() && test.result >= Result::failed && !in_full.insert(test.result).second) {
      feedback.clear();
    }
    text += fmt::format("- {}: {}{}{}{}\n", markdown_line(name(test.result)), markdown_line(test.test),
                        several ? ", on " + markdown_line(worker::text(test.backend)) : "",
                        test.hidden ? " (hidden)" : "", reference) +
            feedback;
  }
  return text;
}

// ---- results.json ----

/// Adds an item to Gradescope's "tests": one entry, or two if students see its hidden tests later than the others.
void add_entries(const GradedSubmission& graded, const GradedItem& item, const std::string& number, json& entries) {
  const std::string title = item.kind == ItemKind::exercise  ? item.id + " " + item.title
                            : item.kind == ItemKind::chapter ? fmt::format("chapter {} as a whole", item.chapter)
                                                             : "bar: " + item.title;
  const auto add = [&](const std::string& what, const std::string& part, bool all, bool passed,
                       const std::string& visibility) {
    Explained explained;
    entries.push_back({{"name", clean_text(title + what)},
                       {"number", number + part},
                       {"score", all ? item.points : 0},
                       {"max_score", all ? item.max_points : 0},
                       {"status", passed ? "passed" : "failed"},
                       {"output", explanation(tests_of(graded, item, all), item.id, explained)},
                       {"output_format", "md"},
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

/// Text for an XML attribute, as one line.
std::string attribute(const std::string& text) {
  std::string value = xml_text(text, 300);
  std::replace(value.begin(), value.end(), '\n', ' ');
  return value;
}

double finite(double seconds) {
  return std::isfinite(seconds) ? seconds : 0;
}

/// The counts of a suite's cases, for its attributes.
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
  std::string text() const {
    return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3f}\"", tests, failures,
                       errors, skipped, seconds);
  }
};

std::string junit_case(const std::string& class_name, const Verdict& test) {
  const std::string backend = test.backend == Backend::cpu ? "" : fmt::format(" [{}]", name(test.backend));
  const std::string opening =
      fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"", attribute(class_name),
                  attribute(test.test + backend + (test.hidden ? " (hidden)" : "")), finite(test.seconds));
  if (test.result == Result::passed) return opening + "/>\n";
  std::string text = test.message;
  if (!cause_of(test).empty()) text += "\nlikely cause: " + cause_of(test);
  const std::string first = text.substr(0, text.find('\n'));
  if (test.result == Result::skipped)
    return fmt::format("{}>\n      <skipped message=\"{}\"/>\n    </testcase>\n", opening, attribute(first));
  return fmt::format("{0}>\n      <{1} type=\"{2}\" message=\"{3}\">{4}</{1}>\n    </testcase>\n", opening,
                     SuiteCounts::is_error(test.result) ? "error" : "failure", attribute(name(test.result)),
                     attribute(first), xml_text(text));
}

/// A suite of these tests, added to `all`. `inside`: the elements before its cases.
std::string junit_suite(const std::string& name, const std::string& class_name, const std::vector<Verdict>& tests,
                        SuiteCounts& all, const std::string& inside = "") {
  SuiteCounts counts;
  std::string cases;
  for (const Verdict& test : tests) {
    counts.add(test);
    all.add(test);
    cases += junit_case(class_name, test);
  }
  return fmt::format("  <testsuite name=\"{}\" {}>\n{}{}  </testsuite>\n", attribute(name), counts.text(), inside,
                     cases);
}

/// The outcome of an item: its result and the first cause of its tests.
std::string outcome(const GradedSubmission& graded, const GradedItem& item) {
  const std::vector<Verdict> tests = tests_of(graded, item, graded.hidden_results != "hidden");
  const auto is_good = [](const Verdict& test) { return test.result <= Result::skipped; };
  const bool exercises = std::ranges::all_of(graded.items, [&](const GradedItem& other) {
    return other.kind != ItemKind::exercise || other.chapter != item.chapter || other.result <= Result::skipped;
  });
  if (item.kind == ItemKind::chapter && !exercises && std::ranges::all_of(tests, is_good))
    return "its own tests passed, but not every exercise";
  const auto caused =
      std::ranges::find_if(tests, [](const Verdict& test) { return test.cause && !test.cause->sentence.empty(); });
  return name(item.result) + (caused == tests.end() ? "" : ": " + caused->cause->sentence);
}

/// The next step for a student after an item that is not solved.
std::string what_next(const GradedSubmission& graded, const GradedItem& item) {
  if (item.public_passed || item.kind == ItemKind::bar) return "";
  if (item.kind == ItemKind::exercise && item.result == Result::not_compiled)
    return fmt::format("`./workbook test {}` shows the same on your machine.\n", item.id);
  if (item.kind == ItemKind::exercise)
    return fmt::format(
        "\n`./workbook test {0}` shows each of these tests in full on your machine; `./workbook hint {0}` gives a "
        "hint.\n",
        item.id);
  std::vector<std::string> first;
  for (const GradedItem& other : graded.items)
    if (other.kind == ItemKind::exercise && other.chapter == item.chapter && !other.public_passed)
      first.push_back(other.id);
  return first.empty() ? ""
                       : fmt::format("\nThese tests run on all of your answers together: fix {} first.\n",
                                     fmt::join(first, " and "));
}

std::string feedback_section(const GradedSubmission& graded, const GradedItem& item, Explained& explained) {
  const bool hides = graded.hidden_results == "hidden";
  std::string text = fmt::format("## {}: {}\n\n", markdown_line(item.id), markdown_line(item.title)) +
                     explanation(tests_of(graded, item, !hides), item.id, explained);
  const auto is_hidden = [](const Verdict& test) { return test.hidden; };
  const std::vector<Verdict> tests = tests_of(graded, item);
  if (hides && std::ranges::any_of(tests, is_hidden)) {
    text +=
        fmt::format("- hidden tests: {} of {} passed\n",
                    std::ranges::count_if(tests, [](const auto& t) { return t.hidden && t.result == Result::passed; }),
                    std::ranges::count_if(tests, is_hidden));
  }
  return text + what_next(graded, item) + "\n";
}

}  // namespace

json gradescope_results(const GradedSubmission& graded) {
  std::string output = fmt::format("{} of {} points.", points_text(graded.points()), points_text(graded.max_points()));
  // With hidden tests, the sum would reveal their results early.
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
    const std::string points = fmt::format(
        "    <properties>\n      <property name=\"points\" value=\"{}\"/>\n      <property name=\"max_points\" "
        "value=\"{}\"/>\n    </properties>\n",
        points_text(item.points), points_text(item.max_points));
    suites += junit_suite(item.id + " " + item.title, fmt::format("{}.{}", graded.student, item.id),
                          tests_of(graded, item), all, points);
  }
  if (!graded.problem.empty()) {
    Verdict problem;
    problem.test = "the submission can be graded";
    problem.result = Result::crashed;
    problem.message = graded.problem;
    suites += junit_suite("grading", graded.student, {problem}, all);
  }
  return fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"{}\" {}>\n{}</testsuites>\n",
                     attribute(graded.assignment), all.text(), suites);
}

std::string feedback_page(const GradedSubmission& graded) {
  std::string text =
      fmt::format("# {}\n\n**{}**: {} of {} points\n\n", markdown_line(graded.assignment),
                  markdown_line(graded.student), points_text(graded.points()), points_text(graded.max_points()));
  if (!graded.problem.empty())
    return text + "This submission could not be graded:\n\n" + markdown_block(graded.problem);
  text += "| | | result | points |\n|---|---|---|---|\n";
  for (const GradedItem& item : graded.items)
    text += fmt::format("| {} | {} | {} | {} of {} |\n", markdown_line(item.id), markdown_line(item.title),
                        markdown_line(outcome(graded, item)), points_text(item.points), points_text(item.max_points));
  text += "\n`./workbook test` shows the same results on your machine.\n\n";
  for (const std::string& note : graded.notes) text += fmt::format("- {}\n", markdown_line(note));
  if (!graded.notes.empty()) text += "\n";
  Explained explained;
  for (const GradedItem& item : graded.items) text += feedback_section(graded, item, explained);
  if (!graded.verified_on.empty())
    text += fmt::format("Verified on {}.\n", markdown_line(fmt::format("{}", fmt::join(graded.verified_on, "; "))));
  return text;
}

}  // namespace workbook::grading
