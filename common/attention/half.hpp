// Rounding to float16, bfloat16 and e4m3, and conversion between float and the codes of the first two: to nearest, ties
// to even, with subnormals, infinities and NaN. For the book's own code; kernels use CUDA's types.
#pragma once

#include <bit>
#include <cstdint>

namespace workbook {

// Rounding has no branches, so that loops vectorise: training rounds millions of values per step.

/// Rounds a float to nearest even without its last `dropped` bits. A carry increases the exponent.
template <int dropped>
constexpr std::uint32_t round_off(std::uint32_t magnitude) {
  const std::uint32_t odd = magnitude >> dropped & 1u, half = 1u << (dropped - 1);
  return (magnitude + half - 1u + odd) >> dropped << dropped;
}

/// The nearest float16 number, as a float; NaN stays NaN.
inline float rounded_to_half(float value) {
  constexpr std::uint32_t infinity = 0x7f800000u;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  std::uint32_t normal = round_off<13>(magnitude);
  normal = normal >= 0x47800000u ? infinity : normal;  // 2^16, which would be the next fp16 number after the largest
  // Below 2^-14, fp16 numbers are multiples of 2^-24, as are the floats between 1/2 and 1. Adding 1/2 therefore rounds.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>((std::bit_cast<float>(magnitude) + 0.5f) - 0.5f);
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude > infinity ? magnitude : result;  // NaN
  return std::bit_cast<float>((bits & 0x80000000u) | result);
}

/// The same for bfloat16.
inline float rounded_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const std::uint32_t result = magnitude > 0x7f800000u ? magnitude : round_off<16>(magnitude);
  return std::bit_cast<float>((bits & 0x80000000u) | result);
}

/// The same for e4m3 (8 bits, 3 of them mantissa), saturated at 448, its largest number. Its smallest step is 2^-9.
inline float rounded_to_e4m3(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  std::uint32_t normal = round_off<20>(magnitude);
  normal = normal > 0x43e00000u ? 0x43e00000u : normal;  // 448
  // Below 2^-6, e4m3 numbers are multiples of 2^-9, as are the floats between 2^14 and 2^15. Adding 2^14 therefore
  // rounds.
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>((std::bit_cast<float>(magnitude) + 0x1p14f) - 0x1p14f);
  std::uint32_t result = magnitude < 0x3c800000u ? subnormal : normal;
  result = magnitude > 0x7f800000u ? magnitude : result;  // NaN
  return std::bit_cast<float>((bits & 0x80000000u) | result);
}

float half_to_float(std::uint16_t code);
std::uint16_t float_to_half(float value);
float bfloat16_to_float(std::uint16_t code);
std::uint16_t float_to_bfloat16(float value);

}  // namespace workbook
