// Registers that hold matrix elements: their element type, and pairs of 16-bit numbers from floats.
#pragma once

#include <cstdint>

#include "common/simt/bfloat16.hpp"
#include "common/simt/e4m3.hpp"
#include "common/simt/half.hpp"
#include "common/simt/runtime.hpp"
#include "common/simt/unset.hpp"

namespace simt {

template <class T>
inline constexpr ElementType element_type = ElementType::float32;
template <>
inline constexpr ElementType element_type<__half> = ElementType::half;
template <>
inline constexpr ElementType element_type<__nv_bfloat16> = ElementType::bfloat16;
template <>
inline constexpr ElementType element_type<__nv_fp8_e4m3> = ElementType::e4m3;

/// Two floats rounded to nearest in one register, `low` in its lower half; the pattern of uninitialised registers is
/// preserved.
inline std::uint32_t register_of_pair(float low, float high, ElementType element) {
  const bool halves = element == ElementType::half;
  const std::uint32_t lower = halves ? half_or_unset(low) : bfloat16_or_unset(low);
  const std::uint32_t upper = halves ? half_or_unset(high) : bfloat16_or_unset(high);
  return lower | upper << 16;
}

}  // namespace simt
