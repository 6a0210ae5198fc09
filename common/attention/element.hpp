// The roundings of each element type. Tensors of 16-bit elements are transferred as codes. Tensors of float8 are
// transferred in fp16: a float8 stage itself rounds Q, K and V to e4m3, with a scale per block of rows
// (rounded_in_blocks), and returns O in fp16.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "common/attention/element_type.hpp"
#include "common/attention/problem.hpp"
#include "common/attention/tolerance.hpp"

namespace workbook {

/// The roundings of a stage with inputs and outputs of this element.
Precision precision_of(Element element);

/// Whether tensors of this element are transferred as 16-bit codes.
inline bool has_codes(Element element) {
  return element != float32;
}
/// Rounds to nearest, ties to even.
std::vector<std::uint16_t> to_codes(std::span<const float> values, Element element);
std::vector<float> from_codes(std::span<const std::uint16_t> codes, Element element);

/// With float8, each block of this number of rows of a head shares a scale; the last block may be shorter.
inline constexpr std::int64_t float8_block_rows = 128;
/// The scale of a block with this largest magnitude: the smallest power of two for which the quotient is at most 448.
/// It is 1 for 0. The argument is finite.
float float8_scale(float largest);
/// A tensor (B, H, N, d) as a float8 stage rounds it: each block divided by its scale, rounded to e4m3, and multiplied
/// by the scale again. The largest magnitude ignores NaN.
Tensor<float> rounded_in_blocks(const Tensor<float>& tensor);

/// A problem as a stage with this element receives it.
struct EncodedProblem {
  Element element;
  Problem problem;  ///< Q, K and V rounded to the element: the values that the stage multiplies
  std::array<std::vector<std::uint16_t>, 3> codes;  ///< of Q, K, V, for the transfer; empty for float32
};
/// InputError, naming the tensor and the value, if a finite value becomes infinite.
EncodedProblem encoded(Problem problem, Element element);

/// The problem with Q, K and V rounded to the element, for an oracle. InputError as above.
Problem rounded_to(Problem problem, Element element);

}  // namespace workbook
