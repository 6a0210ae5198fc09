// The element types of Q, K, V and O. Header-only, since every stage names its own.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace workbook {

enum class Element { float32, float16, bfloat16, float8 };
using enum Element;

/// The names in options, manifests, messages and results.
inline constexpr std::array<std::string_view, 4> element_names{"float32", "float16", "bfloat16", "float8"};
inline std::string name(Element element) {
  return std::string(element_names[std::size_t(element)]);
}
/// The element with this name; nothing for an unknown name.
inline std::optional<Element> element_named(std::string_view name) {
  const auto found = std::find(element_names.begin(), element_names.end(), name);
  return found == element_names.end() ? std::nullopt : std::optional(Element(found - element_names.begin()));
}

/// In JSON, an element is its name. These are templates, so that users without JSON need not include it.
template <class Json>
void to_json(Json& document, Element element) {
  document = name(element);
}
template <class Json>
void from_json(const Json& document, Element& element) {
  element = element_named(document.template get<std::string>()).value();
}

}  // namespace workbook
