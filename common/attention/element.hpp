// What an element type means for numbers. Sixteen-bit elements travel as codes. So do the tensors of float8, in fp16: a
// stage for it rounds Q, K and V itself, to e4m3 with a scale for each block of rows (rounded_in_blocks), and gives O
// in fp16.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/attention/element_type.hpp"
#include "common/attention/problem.hpp"
#include "common/attention/tolerance.hpp"

namespace workbook {

/// The roundings of a stage that takes and gives this element.
Precision precision_of(Element element);

/// Whether it travels as 16-bit codes.
inline bool has_codes(Element element) {
  return element != float32;
}
/// Nearest even.
std::vector<std::uint16_t> to_codes(std::span<const float> values, Element element);
std::vector<float> from_codes(std::span<const std::uint16_t> codes, Element element);

/// With float8 so many rows of a head, the last ones perhaps fewer, share a scale.
inline constexpr std::int64_t float8_block_rows = 128;
/// The scale of a block whose largest magnitude this is: the least power of two with which it is at most 448 after the
/// division. For 0 it is 1. The value is finite.
float float8_scale(float largest);
/// A tensor (B, H, N, d) as a stage for float8 has it: each block divided by its scale, rounded to e4m3, and
/// multiplied by the scale again. NaN does not count for the largest.
Tensor<float> rounded_in_blocks(const Tensor<float>& tensor);

/// A problem as a stage with this element is given it.
struct EncodedProblem {
  Element element;
  Problem problem;  ///< Q, K and V rounded to the element: the numbers that the stage multiplies
  std::array<std::vector<std::uint16_t>, 3> codes;  ///< of Q, K, V, that travel; empty for float32
};
/// InputError naming the tensor and the value if a finite one becomes infinite.
EncodedProblem encoded(Problem problem, Element element);

/// The problem with Q, K and V rounded to the element, for an oracle. InputError as above.
Problem rounded_to(Problem problem, Element element);

}  // namespace workbook
