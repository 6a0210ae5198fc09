// What grading found out about one submission, and the files that say so: Gradescope's results.json, JUnit XML, a
// Markdown page for the student, a row of the class's CSV. Knows nothing of how it was found out.
//
// A hidden test is reported by its name, its result and its likely cause, never by a message: what the code printed or
// threw could carry the hidden inputs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/grading/assignment.hpp"
#include "common/judge/verdict.hpp"

namespace workbook::grading {

/// One test of a submission.
struct GradedTest {
  std::string name;
  std::string exercise;  ///< "2.1", "whole", or its bar: "bar 1"
  int chapter = 0;
  std::string backend;  ///< "cpu", "sim", "cuda"
  bool hidden = false;
  std::string result;  ///< passed, failed, todo, blocked, skipped, crashed, timed out, not compiled, rejected
  std::string message, likely_cause, diagnosis;
  std::string file;
  int line = 0;
  double seconds = 0;
};

/// A verdict as a test of a submission.
GradedTest graded_test(const judge::Verdict& verdict, int chapter);

/// Something that points are given for.
struct GradedItem {
  std::string kind;   ///< "exercise", "chapter", "bar"
  std::string id;     ///< "2.1", "chapter 2", "bar 1"
  std::string title;  ///< "The running maximum and sum of a row"
  int chapter = 0;
  double points = 0, max_points = 0;
  std::string result;          ///< "passed", or the worst of its tests' results
  bool has_hidden = false;     ///< some of its tests are hidden
  bool public_passed = false;  ///< all of its public tests passed
};

struct GradedSubmission {
  std::string student, assignment;
  std::vector<GradedItem> items;
  std::vector<GradedTest> tests;
  std::vector<std::string> notes;
  std::vector<std::string> verified_on;  ///< "the CPU (GNU 12.2.0)", …
  std::string problem;                   ///< why it could not be graded at all; empty if it was
  std::string hidden_results = "after_published";
  bool leaderboard = false;
  nlohmann::json isolation;  ///< how the code was kept from the machine, for the record
  double seconds = 0;
  std::string key;  ///< hash of all that the result depends on

  double points() const;
  double max_points() const;
};

nlohmann::json to_json(const GradedSubmission& graded);
/// nlohmann::json::exception if a key is missing or of another type.
GradedSubmission submission_from_json(const nlohmann::json& json);

/// Gradescope's results.json. No top-level score: the tests' scores add up to it.
nlohmann::json gradescope_results(const GradedSubmission& graded);

/// JUnit XML as common/grading/junit.xsd has it.
std::string junit_xml(const GradedSubmission& graded);

/// The page for the student.
std::string feedback_page(const GradedSubmission& graded);

/// {"student,points,of,2.1,…"} and one row.
std::string csv_header(const GradedSubmission& any);
std::string csv_row(const GradedSubmission& graded);

/// Which result counts when several differ: the one that says most about what is wrong.
int severity(const std::string& result);

}  // namespace workbook::grading
