#include "common/grading/graded.hpp"

#include <utility>

#include "common/book/foreign_text.hpp"

namespace workbook::judge {

static void to_json(nlohmann::json& document, Result result) {
  document = name(result);
}
static void from_json(const nlohmann::json& document, Result& result) {
  result = result_named(document.get<std::string>());
}

}  // namespace workbook::judge

namespace workbook::grading {

using book::clean_text;
using judge::Result;
using judge::Verdict;
using nlohmann::json;

NLOHMANN_JSON_SERIALIZE_ENUM(ItemKind,
                             {{ItemKind::exercise, "exercise"}, {ItemKind::chapter, "chapter"}, {ItemKind::bar, "bar"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GradedItem, kind, id, title, chapter, points, max_points, result, has_hidden,
                                   public_passed)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GradedSubmission, student, path, assignment, items, notes, verified_on, problem,
                                   hidden_results, leaderboard, isolation, key)

namespace {

json cleaned(json document) {
  if (document.is_string()) return clean_text(document.get_ref<const std::string&>());
  if (document.is_structured())
    for (json& part : document) part = cleaned(std::move(part));
  return document;
}

}  // namespace

std::string name(ItemKind kind) {
  return json(kind).get<std::string>();
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

Verdict shown(const Verdict& verdict) {
  if (!verdict.hidden) return verdict;
  // Copies only the fields that may be shown, so that fields added to Verdict later stay hidden.
  Verdict shown;
  shown.chapter = verdict.chapter;
  shown.exercise = verdict.exercise;
  shown.test = verdict.test;
  shown.backend = verdict.backend;
  shown.result = verdict.result;
  shown.hidden = true;
  shown.finished = verdict.finished;
  if (verdict.result != Result::passed) shown.message = "a hidden test: its message is not shown";
  if (verdict.cause) shown.cause = {verdict.cause->id, verdict.cause->sentence, ""};
  shown.blocked_by = verdict.blocked_by;
  shown.seconds = verdict.seconds;
  return shown;
}

json to_json(const GradedSubmission& graded) {
  json document = graded;
  document.update({{"points", graded.points()},
                   {"max_points", graded.max_points()},
                   {"seconds", judge::number_json(graded.seconds)},
                   {"tests", json::array()}});
  for (const CountedTest& test : graded.tests) {
    document["tests"].push_back(judge::to_json(shown(test.verdict)));
    document["tests"].back()["item"] = test.item;
  }
  return cleaned(document);
}

GradedSubmission submission_from_json(const json& document) {
  auto graded = document.get<GradedSubmission>();
  graded.seconds = judge::number_from_json(document.at("seconds"));
  for (const json& test : document.at("tests"))
    graded.tests.push_back({judge::verdict_from_json(test), test.at("item")});
  return graded;
}

}  // namespace workbook::grading
