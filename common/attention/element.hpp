// The element types of Q, K, V and O, by name: "float32", "float16", "bfloat16". Sixteen-bit elements travel as codes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/attention/problem.hpp"
#include "common/attention/tolerance.hpp"

namespace workbook {

/// The roundings of a stage that takes and gives this element. InputError for another name.
Precision precision_of(std::string_view element);

/// Whether it travels as 16-bit codes.
inline bool has_codes(std::string_view element) {
  return element != "float32";
}
/// Nearest even.
std::vector<std::uint16_t> to_codes(std::span<const float> values, std::string_view element);
std::vector<float> from_codes(std::span<const std::uint16_t> codes, std::string_view element);

/// The problem with Q, K and V rounded to the element, so that the oracle sees the numbers that the stage sees.
/// InputError naming the tensor and the value if a finite one becomes infinite.
Problem rounded_to(Problem problem, std::string_view element);

}  // namespace workbook
