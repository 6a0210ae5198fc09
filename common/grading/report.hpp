// The reports on one graded submission: Gradescope's results.json, JUnit XML, and a Markdown page for the student. They
// are generated only from its data (graded.hpp).
//
// A hidden test is reported as shown() permits: with its name, its result and its likely cause, without a message.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/grading/graded.hpp"

namespace workbook::grading {

/// Gradescope's results.json. No top-level score: the tests' scores add up to it.
nlohmann::json gradescope_results(const GradedSubmission& graded);

/// JUnit XML according to common/grading/junit.xsd.
std::string junit_xml(const GradedSubmission& graded);

/// The page for the student.
std::string feedback_page(const GradedSubmission& graded);

}  // namespace workbook::grading
