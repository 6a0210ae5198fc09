#include "common/attention/half.hpp"

#include <bit>
#include <cmath>

namespace workbook {
namespace {

/// `bits` shifted right, rounded to the nearest whole number, ties to even.
std::uint32_t round_shift(std::uint32_t bits, int shift) {
  const std::uint32_t half = 1u << (shift - 1), odd = (bits >> shift) & 1u;
  return (bits + half - 1u + odd) >> shift;
}

}  // namespace

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
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return std::uint16_t(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));  // NaN, made quiet
  // From 65520, halfway between the largest finite 65504 and the next step 65536, rounding gives infinity.
  if (magnitude >= 0x477ff000u) return std::uint16_t(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {                                         // below 2^-14: subnormal, a multiple of 2^-24
    if (magnitude < 0x33000000u) return std::uint16_t(sign);             // below 2^-25, half of the smallest
    const std::uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;  // with the leading 1
    const int shift = 126 - int(magnitude >> 23);  // value = mantissa·2^(exponent-150); in steps of 2^-24
    return std::uint16_t(sign | round_shift(mantissa, shift));
  }
  // A carry out of the mantissa raises the exponent, which is what rounding up to the next power of two means.
  return std::uint16_t(sign | round_shift(magnitude - ((127u - 15u) << 23), 13));
}

// bfloat16: the upper half of a float.

float bfloat16_to_float(std::uint16_t code) {
  return std::bit_cast<float>(std::uint32_t(code) << 16);
}

std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return std::uint16_t(bits >> 16 | 0x40u);  // NaN, made quiet
  return std::uint16_t(round_shift(bits, 16));
}

}  // namespace workbook
