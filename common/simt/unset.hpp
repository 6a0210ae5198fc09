// The pattern of uninitialised registers: NaNs that no computation produces, so that their use is detected. On a GPU
// such registers hold arbitrary values.
#pragma once

#include <bit>
#include <cstdint>

#include "common/simt/half_codes.hpp"

namespace simt {

inline constexpr std::uint16_t kUnsetHalf = 0x7d5a, kUnsetBfloat16 = 0x7fa5;
inline constexpr std::uint32_t kUnsetFloat = 0x7fa5c3d2;
/// Arithmetic on a NaN sets its "quiet" bit and keeps the rest: a result of an uninitialised operand keeps the pattern.
inline constexpr std::uint16_t kQuietHalf = 0x0200, kQuietBfloat16 = 0x0040;
inline constexpr std::uint32_t kQuietFloat = 0x00400000;

inline bool is_unset(float x) {
  return (std::bit_cast<std::uint32_t>(x) | kQuietFloat) == (kUnsetFloat | kQuietFloat);
}

/// Rounds to nearest, ties to even, as float_to_half and float_to_bfloat16 do; the pattern of uninitialised registers
/// is preserved.
inline std::uint16_t half_or_unset(float x) {
  return is_unset(x) ? kUnsetHalf : float_to_half(x);
}
inline std::uint16_t bfloat16_or_unset(float x) {
  return is_unset(x) ? kUnsetBfloat16 : float_to_bfloat16(x);
}

}  // namespace simt
