// float16 and bfloat16 as codes: conversions to and from float, round to nearest even, subnormals, infinities and NaN.
// For the book's side of the pipe; kernels use CUDA's own types.
#pragma once

#include <cstdint>

namespace workbook {

float half_to_float(std::uint16_t code);
std::uint16_t float_to_half(float value);
float bfloat16_to_float(std::uint16_t code);
std::uint16_t float_to_bfloat16(float value);

}  // namespace workbook
