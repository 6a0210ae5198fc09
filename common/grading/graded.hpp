// What grading found out about one submission, as data: its tests, and what points were given for them. Knows nothing
// of how it was found out, nor of the files that report it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/judge/verdict.hpp"

namespace workbook::grading {

enum class ItemKind { exercise, chapter, bar };
/// "exercise", "chapter", "bar".
std::string name(ItemKind kind);

/// Something that points are given for.
struct GradedItem {
  ItemKind kind = ItemKind::exercise;
  std::string id;     ///< "2.1", "chapter 2", "bar 1"
  std::string title;  ///< "The running maximum and sum of a row"
  int chapter = 0;
  double points = 0, max_points = 0;
  judge::Result result = judge::Result::passed;  ///< the worst of its tests' results
  bool has_hidden = false;                       ///< some of its tests are hidden
  bool public_passed = false;                    ///< all of its public tests passed
};

/// A test of a submission, and the id of the item that it counts for.
struct CountedTest {
  judge::Verdict verdict;
  std::string item;
};

struct GradedSubmission {
  std::string student, assignment;
  std::string path;  ///< what was handed in, as it was named
  std::vector<GradedItem> items;
  std::vector<CountedTest> tests;
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

/// What may be said of a test. Of a hidden one: its name, its result, the exercise that blocks it, and the likely
/// cause's id and sentence, which are the book's own; no message, measure, place or anything else, since what the code
/// printed or threw could carry the hidden inputs.
judge::Verdict shown(const judge::Verdict& verdict);

/// The record of a submission, for a later run and for --json: its tests as they may be shown, each as judge::to_json
/// has it with its "item" beside. Every text is made fit for other programs (clean_text).
nlohmann::json to_json(const GradedSubmission& graded);
/// nlohmann::json::exception or std::invalid_argument for a document that is none.
GradedSubmission submission_from_json(const nlohmann::json& json);

}  // namespace workbook::grading
