// The files that say what grading found out about one submission: Gradescope's results.json, JUnit XML, a Markdown page
// for the student. They are made from its data alone (graded.hpp).
//
// A hidden test is reported as shown() has it: by its name, its result and its likely cause, never by a message.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/grading/graded.hpp"

namespace workbook::grading {

/// Gradescope's results.json. No top-level score: the tests' scores add up to it.
nlohmann::json gradescope_results(const GradedSubmission& graded);

/// JUnit XML as common/grading/junit.xsd has it.
std::string junit_xml(const GradedSubmission& graded);

/// The page for the student.
std::string feedback_page(const GradedSubmission& graded);

}  // namespace workbook::grading
