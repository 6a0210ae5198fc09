#include "common/judge/trial.hpp"

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

namespace {

json axis_json(const AxisFinding& axis) {
  return {{"axis", axis.axis},   {"size", axis.size},     {"first", axis.first}, {"last", axis.last},
          {"dense", axis.dense}, {"period", axis.period}, {"low", axis.low},     {"high", axis.high}};
}

json tensor_json(const TensorFinding& tensor) {
  json document{{"tensor", tensor.tensor},
                {"right", tensor.right},
                {"elements", tensor.elements},
                {"off", tensor.off},
                {"nan", tensor.nan},
                {"unwritten", tensor.unwritten},
                {"rows_per_warp", tensor.rows_per_warp},
                {"rows_scaled", tensor.rows_scaled},
                {"where", json::array()}};
  for (const AxisFinding& axis : tensor.where) document["where"].push_back(axis_json(axis));
  return document;
}

TensorFinding tensor_from_json(const json& json) {
  TensorFinding tensor;
  tensor.tensor = json.at("tensor");
  tensor.right = json.at("right");
  tensor.elements = json.at("elements");
  tensor.off = json.at("off");
  tensor.nan = json.at("nan");
  tensor.unwritten = json.at("unwritten");
  tensor.rows_per_warp = json.at("rows_per_warp");
  tensor.rows_scaled = json.value("rows_scaled", false);  // records of earlier gradings have none
  for (const auto& axis : json.at("where")) {
    tensor.where.push_back({axis.at("axis"), axis.at("size"), axis.at("first"), axis.at("last"), axis.at("dense"),
                            axis.at("period"), axis.at("low"), axis.at("high")});
  }
  return tensor;
}

}  // namespace

json to_json(const Trial& trial) {
  json document{{"numbers", json::object()},
                {"tensors", json::array()},
                {"reported", trial.reported},
                {"only_l_is_wrong", trial.only_l_is_wrong ? json(*trial.only_l_is_wrong) : json(nullptr)}};
  for (const auto& [name, value] : trial.numbers) document["numbers"][name] = number_json(value);
  for (const TensorFinding& tensor : trial.tensors) document["tensors"].push_back(tensor_json(tensor));
  return document;
}

Trial trial_from_json(const json& json) {
  Trial trial;
  for (const auto& [name, value] : json.at("numbers").items()) trial.numbers[name] = number_from_json(value);
  for (const auto& tensor : json.at("tensors")) trial.tensors.push_back(tensor_from_json(tensor));
  trial.reported = json.at("reported");
  if (const auto& told = json.at("only_l_is_wrong"); !told.is_null()) trial.only_l_is_wrong = told.get<bool>();
  return trial;
}

}  // namespace workbook::judge
