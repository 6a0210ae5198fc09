#include "common/judge/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "common/worker/reports.hpp"

namespace workbook::judge {

using nlohmann::json;

const char* name(Result result) {
  switch (result) {
    case Result::passed:
      return "passed";
    case Result::skipped:
      return "skipped";
    case Result::todo:
      return "todo";
    case Result::blocked:
      return "blocked";
    case Result::failed:
      return "failed";
    case Result::crashed:
      return "crashed";
    case Result::timed_out:
      return "timed out";
    case Result::not_compiled:
      break;
  }
  return "not compiled";
}

Result result_named(std::string_view name) {
  const auto* const found = std::ranges::find_if(kResults, [&](Result result) { return judge::name(result) == name; });
  if (found == std::end(kResults)) throw std::invalid_argument("\"" + std::string(name) + "\" is not a test result");
  return *found;
}

std::string Cause::text() const {
  if (measure.empty()) return sentence;
  const bool ended = sentence.ends_with('.');
  return (ended ? sentence.substr(0, sentence.size() - 1) : sentence) + " (" + measure + ")" + (ended ? "." : "");
}

namespace {

json observations_json(const std::vector<Observation>& observations) {
  json all = json::array();
  for (const Observation& observation : observations) all.push_back(to_json(observation));
  return all;
}

}  // namespace

json to_json(const Verdict& verdict) {
  const auto& place = verdict.place;
  return {{"chapter", verdict.chapter},
          {"exercise", verdict.exercise},
          {"name", verdict.test},
          {"backend", name(verdict.backend)},
          {"result", name(verdict.result)},
          {"hidden", verdict.hidden},
          {"finished", verdict.finished},
          {"message", verdict.message},
          {"cause", verdict.cause ? json(*verdict.cause) : json(nullptr)},
          {"reports", worker::reports_json(verdict.reports)},
          {"reports_left_out", verdict.reports_left_out},
          {"trials", observations_json(verdict.observations)},
          {"kinds", verdict.kinds},
          {"unavailable", verdict.unavailable},
          {"blocked_by", verdict.blocked_by.empty() ? json(nullptr) : json(verdict.blocked_by)},
          {"place", place ? json(*place) : json(nullptr)},
          {"seconds", number_json(verdict.seconds)}};
}

Verdict verdict_from_json(const json& json) {
  Verdict verdict;
  verdict.chapter = json.at("chapter");
  verdict.exercise = json.at("exercise");
  verdict.test = json.at("name");
  verdict.backend = worker::backend_of(json.at("backend").get<std::string>());
  verdict.result = result_named(json.at("result").get<std::string>());
  verdict.hidden = json.at("hidden");
  verdict.finished = json.at("finished");
  verdict.message = json.at("message");
  if (const auto& cause = json.at("cause"); !cause.is_null()) verdict.cause = cause.get<Cause>();
  verdict.reports = worker::reports_from_json(json.at("reports"));
  verdict.reports_left_out = json.at("reports_left_out");
  for (const auto& observation : json.at("trials")) verdict.observations.push_back(observation_from_json(observation));
  verdict.kinds = json.value("kinds", verdict.kinds);  // records of earlier gradings have no kinds
  verdict.unavailable = json.at("unavailable");
  if (const auto& exercise = json.at("blocked_by"); !exercise.is_null()) verdict.blocked_by = exercise;
  if (const auto& place = json.at("place"); !place.is_null()) verdict.place = place.get<SourceLocation>();
  verdict.seconds = number_from_json(json.at("seconds"));
  return verdict;
}

}  // namespace workbook::judge
