// Conversions between the bit patterns of float16 or bfloat16 and float, exactly as CUDA's: round to nearest even or in
// a given direction, subnormals kept, any NaN becomes 0x7fff. Plain functions on integers and floats, for kernels and
// for the simulator.
#pragma once

#include <bit>
#include <cstdint>

namespace simt {

inline float half_to_float(std::uint16_t code) {
  const std::uint32_t magnitude = code & 0x7fffu;
  // Exponent and fraction moved to the fields of a float, times 2^112: exact, for subnormal halves too.
  std::uint32_t bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  if (magnitude >= 0x7c00u) bits = 0x7f800000u | magnitude << 13;
  return std::bit_cast<float>(bits | (code & 0x8000u) << 16);
}

inline std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and more round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 aligns the last bit of a subnormal half with the last bit of the sum; the addition
    // rounds.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3f000000u));
  }
  // Adds half an ulp minus one, plus the last kept bit: carries exactly when rounding to nearest even rounds up.
  const std::uint32_t rounded = magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

inline float bfloat16_to_float(std::uint16_t code) {
  return std::bit_cast<float>(std::uint32_t(code) << 16);
}

inline std::uint16_t float_to_bfloat16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// The largest code of a format whose value is not above the float. to_code is the format's conversion to nearest,
/// which keeps the sign. Above the largest finite code there is only infinity, and a finite float is below it.
template <auto to_code, auto to_float>
std::uint16_t round_down(float value) {
  const std::uint16_t code = to_code(value);
  if (!(to_float(code) > value)) return code;
  return static_cast<std::uint16_t>(code & 0x8000u ? code + 1 : code - 1);
}
template <auto to_code, auto to_float>
std::uint16_t round_up(float value) {
  const std::uint16_t code = to_code(value);
  if (!(to_float(code) < value)) return code;
  return static_cast<std::uint16_t>(code & 0x8000u ? code - 1 : code + 1);
}
template <auto to_code, auto to_float>
std::uint16_t round_to_zero(float value) {
  return value < 0 ? round_up<to_code, to_float>(value) : round_down<to_code, to_float>(value);
}

}  // namespace simt
