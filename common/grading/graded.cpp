#include "common/grading/graded.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "common/grading/text.hpp"

namespace workbook::grading {
namespace {

using judge::number_from_json;
using judge::number_json;
using judge::Result;
using judge::Verdict;
using nlohmann::json;

constexpr std::array kKinds{ItemKind::exercise, ItemKind::chapter, ItemKind::bar};

ItemKind kind_named(const std::string& text) {
  const auto* const found = std::ranges::find_if(kKinds, [&](ItemKind kind) { return name(kind) == text; });
  if (found == kKinds.end()) throw std::invalid_argument("\"" + text + "\" is no kind of item");
  return *found;
}

json cleaned(json document) {
  if (document.is_string()) return clean_text(document.get_ref<const std::string&>());
  if (document.is_structured()) {
    for (json& part : document) part = cleaned(std::move(part));
  }
  return document;
}

json item_json(const GradedItem& item) {
  return {{"kind", name(item.kind)},
          {"id", item.id},
          {"title", item.title},
          {"chapter", item.chapter},
          {"points", number_json(item.points)},
          {"max_points", number_json(item.max_points)},
          {"result", judge::name(item.result)},
          {"has_hidden", item.has_hidden},
          {"public_passed", item.public_passed}};
}

GradedItem item_from_json(const json& document) {
  return {kind_named(document.at("kind")),
          document.at("id"),
          document.at("title"),
          document.at("chapter"),
          number_from_json(document.at("points")),
          number_from_json(document.at("max_points")),
          judge::result_named(document.at("result").get<std::string>()),
          document.at("has_hidden"),
          document.at("public_passed")};
}

}  // namespace

const char* name(ItemKind kind) {
  switch (kind) {
    case ItemKind::exercise:
      return "exercise";
    case ItemKind::chapter:
      return "chapter";
    case ItemKind::bar:
      break;
  }
  return "bar";
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
  // Field by field what may be shown: what a verdict will have beside it stays hidden.
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
  json items = json::array(), tests = json::array();
  for (const GradedItem& item : graded.items) items.push_back(item_json(item));
  for (const CountedTest& test : graded.tests) {
    tests.push_back(judge::to_json(shown(test.verdict)));
    tests.back()["item"] = test.item;
  }
  return cleaned({{"student", graded.student},
                  {"path", graded.path},
                  {"assignment", graded.assignment},
                  {"points", number_json(graded.points())},
                  {"max_points", number_json(graded.max_points())},
                  {"items", items},
                  {"tests", tests},
                  {"notes", graded.notes},
                  {"verified_on", graded.verified_on},
                  {"problem", graded.problem},
                  {"hidden_results", graded.hidden_results},
                  {"leaderboard", graded.leaderboard},
                  {"isolation", graded.isolation},
                  {"seconds", number_json(graded.seconds)},
                  {"key", graded.key}});
}

GradedSubmission submission_from_json(const json& document) {
  GradedSubmission graded;
  graded.student = document.at("student");
  graded.path = document.at("path");
  graded.assignment = document.at("assignment");
  graded.notes = document.at("notes").get<std::vector<std::string>>();
  graded.verified_on = document.at("verified_on").get<std::vector<std::string>>();
  graded.problem = document.at("problem");
  graded.hidden_results = document.at("hidden_results");
  graded.leaderboard = document.at("leaderboard");
  graded.isolation = document.at("isolation");
  graded.seconds = number_from_json(document.at("seconds"));
  graded.key = document.at("key");
  for (const json& item : document.at("items")) graded.items.push_back(item_from_json(item));
  for (const json& test : document.at("tests"))
    graded.tests.push_back({judge::verdict_from_json(test), test.at("item")});
  return graded;
}

}  // namespace workbook::grading
