// The element types of Q, K, V and O, by name: "float32", "float16", "bfloat16". Sixteen-bit elements travel as codes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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

/// A problem as a stage with this element is given it.
struct EncodedProblem {
  std::string element;
  Problem problem;                     ///< Q, K and V rounded to the element: the numbers that the stage sees
  std::vector<std::uint16_t> Q, K, V;  ///< their codes; empty for float32, whose numbers travel as they are
};
/// InputError naming the tensor and the value if a finite one becomes infinite.
EncodedProblem encoded(Problem problem, std::string_view element);

/// The problem with Q, K and V rounded to the element, for an oracle. InputError as above.
Problem rounded_to(Problem problem, std::string_view element);

}  // namespace workbook
