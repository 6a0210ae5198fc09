// The result of grading one submission, as data: its tests and points. Independent of the grading process and of the
// report formats.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/judge/verdict.hpp"

namespace workbook::grading {

enum class ItemKind { exercise, chapter, bar };
/// "exercise", "chapter", "bar".
std::string name(ItemKind kind);

/// An item that earns points.
struct GradedItem {
  ItemKind kind = ItemKind::exercise;
  std::string id;     ///< "2.1", "chapter 2", "bar 1"
  std::string title;  ///< "The running maximum and sum of a row"
  int chapter = 0;
  double points = 0, max_points = 0;
  judge::Result result = judge::Result::passed;  ///< the most severe of its tests' results
  bool has_hidden = false;                       ///< some of its tests are hidden
  bool public_passed = false;                    ///< all of its public tests passed
};

/// A test of a submission, and the id of the item to which it belongs.
struct CountedTest {
  judge::Verdict verdict;
  std::string item;
};

struct GradedSubmission {
  std::string student, assignment;
  std::string path;  ///< the path of the submission, as given
  std::vector<GradedItem> items;
  std::vector<CountedTest> tests;
  std::vector<std::string> notes;
  std::vector<std::string> verified_on;  ///< "the CPU (GNU 12.2.0)", …
  std::string problem;                   ///< why it could not be graded; empty if it was graded
  std::string hidden_results = "after_published";
  bool leaderboard = false;
  nlohmann::json isolation;  ///< how the code was isolated, for the record
  double seconds = 0;
  std::string key;  ///< hash of everything on which the result depends

  double points() const;
  double max_points() const;
};

/// The part of a verdict that may be shown. For a hidden test: its name, its result, the exercise that blocks it, and
/// the likely cause's id and sentence, which are the book's own. Message, measure and location are omitted, since
/// output or exceptions of the code could contain the hidden inputs.
judge::Verdict shown(const judge::Verdict& verdict);

/// The record of a submission, for a later run and for --json. Its tests are converted by shown() and judge::to_json,
/// with an additional "item". All texts are sanitised for other programs (clean_text).
nlohmann::json to_json(const GradedSubmission& graded);
/// nlohmann::json::exception or std::invalid_argument for an invalid document.
GradedSubmission submission_from_json(const nlohmann::json& json);

}  // namespace workbook::grading
