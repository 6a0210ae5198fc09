#include "common/judge/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/worker/json.hpp"

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

bool Trial::wrong() const {
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

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AxisFinding, axis, size, first, last, dense, period, low, high)
// With defaults: records of earlier gradings have no rows_scaled.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TensorFinding, tensor, right, elements, off, nan, unwritten,
                                                rows_per_warp, rows_scaled, where)

json to_json(const Trial& trial) {
  json document{{"numbers", json::object()},
                {"tensors", trial.tensors},
                {"reported", trial.reported},
                {"only_l_is_wrong", trial.only_l_is_wrong}};
  for (const auto& [name, value] : trial.numbers) document["numbers"][name] = number_json(value);
  return document;
}

Trial trial_from_json(const json& json) {
  Trial trial;
  for (const auto& [name, value] : json.at("numbers").items()) trial.numbers[name] = number_from_json(value);
  json.at("tensors").get_to(trial.tensors);
  json.at("reported").get_to(trial.reported);
  json.at("only_l_is_wrong").get_to(trial.only_l_is_wrong);
  return trial;
}

}  // namespace workbook::judge
