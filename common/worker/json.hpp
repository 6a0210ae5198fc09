// Extends NLOHMANN_DEFINE_TYPE_… to std::optional: an empty one is null.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace nlohmann {
template <class T>
struct adl_serializer<std::optional<T>> {
  static void to_json(json& document, const std::optional<T>& value) {
    if (value)
      document = *value;
    else
      document = nullptr;
  }
  static void from_json(const json& document, std::optional<T>& value) {
    if (document.is_null())
      value.reset();
    else
      value = document.get<T>();
  }
};
}  // namespace nlohmann
