#include "common/attention/half.hpp"

#include <cmath>

namespace workbook {

// float16: 1 sign bit, 5 exponent bits (bias 15), 10 mantissa bits. float: 1, 8 (bias 127), 23.

float half_to_float(std::uint16_t code) {
  const std::uint32_t sign = (code & 0x8000u) << 16, exponent = (code >> 10) & 0x1fu, mantissa = code & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | mantissa << 13);  // infinity or NaN
  if (exponent == 0) {  // zero or subnormal: mantissa·2^-24, exact in float
    const float magnitude = std::ldexp(float(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(rounded_to_half(value));
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return std::uint16_t(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));  // makes a NaN quiet
  if (magnitude == 0x7f800000u) return std::uint16_t(sign | 0x7c00u);
  if (magnitude < 0x38800000u)  // below 2^-14: zero or subnormal, a multiple of 2^-24
    return std::uint16_t(sign | std::uint32_t(std::bit_cast<float>(magnitude) * 0x1p24f));
  return std::uint16_t(sign | (magnitude - ((127u - 15u) << 23)) >> 13);
}

// bfloat16: the upper half of a float.

float bfloat16_to_float(std::uint16_t code) {
  return std::bit_cast<float>(std::uint32_t(code) << 16);
}

std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(rounded_to_bfloat16(value));
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return std::uint16_t(bits >> 16 | (nan ? 0x40u : 0u));  // makes a NaN quiet
}

}  // namespace workbook
