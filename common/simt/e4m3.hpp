// 8-bit floating point e4m3 as in CUDA, without infinities: 4 bits of exponent, 3 of fraction, largest value 448.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace simt {

inline float e4m3_to_float(std::uint8_t code) {
  const int exponent = code >> 3 & 15, fraction = code & 7;
  const float sign = code & 0x80 ? -1.0f : 1.0f;
  if (exponent == 15 && fraction == 7) return std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * float(fraction) * 0x1p-9f;
  return sign * std::bit_cast<float>(std::uint32_t(exponent - 7 + 127) << 23 | std::uint32_t(fraction) << 20);
}

/// Rounds to nearest, ties to even; saturates at 448 ("satfinite").
inline std::uint8_t float_to_e4m3(float value) {
  const auto sign = static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value) >> 24 & 0x80);
  if (std::isnan(value)) return static_cast<std::uint8_t>(sign | 0x7f);
  const float magnitude = std::fabs(value);
  if (magnitude >= 448.0f) return static_cast<std::uint8_t>(sign | 0x7e);
  if (magnitude < 0x1p-6f) {  // subnormal: multiples of 2^-9
    return static_cast<std::uint8_t>(sign | static_cast<std::uint8_t>(std::nearbyint(magnitude * 0x1p9f)));
  }
  std::uint32_t bits = std::bit_cast<std::uint32_t>(magnitude);
  bits += 0x7ffffu + (bits >> 20 & 1u);
  const std::uint32_t code = (bits >> 20) - ((127u - 7u) << 3);
  return static_cast<std::uint8_t>(sign | (code > 0x7e ? 0x7e : code));
}

}  // namespace simt

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names
/// CUDA's type: one code.
struct __nv_fp8_e4m3 {
  std::uint8_t __x;
};
// NOLINTEND(bugprone-reserved-identifier)
