#include "common/judge/observation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace workbook::judge {

using nlohmann::json;

const AxisFinding* TensorFinding::along(const std::string& axis) const {
  const auto found = std::ranges::find(where, axis, &AxisFinding::axis);
  return found == where.end() ? nullptr : &*found;
}

std::string AxisFinding::repetition(std::int64_t rows_per_warp) const {
  const bool of_warp = axis == "row" && period == rows_per_warp;
  const std::string each = of_warp ? "of each warp" : fmt::format("of every {}", period);
  return low == high ? fmt::format("{} {} {}", plural(), low, each)
                     : fmt::format("{} {} to {} {}", plural(), low, high, each);
}

bool Observation::wrong() const {
  return reported || std::ranges::any_of(tensors, [](const TensorFinding& tensor) { return !tensor.right; });
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

json to_json(const Observation& observation) {
  json document{{"numbers", json::object()},
                {"tensors", observation.tensors},
                {"reported", observation.reported},
                {"only_l_is_wrong", observation.only_l_is_wrong ? json(*observation.only_l_is_wrong) : json(nullptr)}};
  for (const auto& [name, value] : observation.numbers) document["numbers"][name] = number_json(value);
  return document;
}

Observation observation_from_json(const json& json) {
  Observation observation;
  for (const auto& [name, value] : json.at("numbers").items()) observation.numbers[name] = number_from_json(value);
  json.at("tensors").get_to(observation.tensors);
  observation.reported = json.at("reported");
  if (const auto& only_l = json.at("only_l_is_wrong"); !only_l.is_null())
    observation.only_l_is_wrong = only_l.get<bool>();
  return observation;
}

}  // namespace workbook::judge
