#include "common/judge/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

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
      return "not compiled";
    case Result::rejected:
      break;
  }
  return "rejected";
}

Result result_named(std::string_view name) {
  const auto* const found = std::ranges::find_if(kResults, [&](Result result) { return judge::name(result) == name; });
  if (found == std::end(kResults)) throw std::invalid_argument("\"" + std::string(name) + "\" is no result of a test");
  return *found;
}

json number_json(std::optional<double> value) {
  if (!value) return nullptr;
  if (std::isnan(*value)) return "nan";
  if (std::isinf(*value)) return *value > 0 ? "inf" : "-inf";
  return *value;
}

double number_from_json(const json& value) {
  if (!value.is_string()) return value.get<double>();
  const std::string text = value.get<std::string>();
  return text == "nan" ? std::nan("") : text == "inf" ? INFINITY : -INFINITY;
}

json to_json(const Verdict& verdict) {
  const auto& cause = verdict.cause;
  const auto& place = verdict.place;
  return {{"chapter", verdict.chapter},
          {"exercise", verdict.exercise},
          {"name", verdict.test},
          {"backend", name(verdict.backend)},
          {"result", name(verdict.result)},
          {"hidden", verdict.hidden},
          {"finished", verdict.finished},
          {"message", verdict.message},
          {"cause",
           cause ? json{{"id", cause->id}, {"sentence", cause->sentence}, {"measure", cause->measure}} : json(nullptr)},
          {"blocked_by", verdict.blocked_by.empty() ? json(nullptr) : json(verdict.blocked_by)},
          {"place", place ? json{{"file", place->file}, {"line", place->line}} : json(nullptr)},
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
  if (const auto& cause = json.at("cause"); !cause.is_null())
    verdict.cause = {cause.at("id"), cause.at("sentence"), cause.at("measure")};
  if (const auto& exercise = json.at("blocked_by"); !exercise.is_null()) verdict.blocked_by = exercise;
  if (const auto& place = json.at("place"); !place.is_null()) verdict.place = {place.at("file"), place.at("line")};
  verdict.seconds = number_from_json(json.at("seconds"));
  return verdict;
}

}  // namespace workbook::judge
