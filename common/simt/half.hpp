// __half and __half2, as in cuda_fp16.h. Conversions and arithmetic give the GPU's bits (nvcc may fuse a product and a
// sum into one operation with one rounding; here that takes __hfma).
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param):
// CUDA's names begin with underscores; macros take types; CUDA's functions take their 2 or 4 bytes by value.

#include "common/simt/half_codes.hpp"
#include "common/simt/sixteen_bit.hpp"
#include "common/simt/vector_types.hpp"

struct alignas(2) __half {
  SIMT_SIXTEEN_BIT_MEMBERS(__half, simt::half_to_float, simt::float_to_half)
};

struct alignas(4) __half2 {
  __half x, y;
  SIMT_COPIED_WHOLE(__half2)
  __half2(__half x_, __half y_) : x(x_), y(y_) {}
};

using half = __half;
using half2 = __half2;

SIMT_SIXTEEN_BIT_ARITHMETIC(__half, __half2)

inline bool __hisinf(__half a) {
  return (a.simt_code() & 0x7fffu) == 0x7c00u;
}
inline __half __float2half(float f) {
  return __half(f);
}
inline __half __float2half_rn(float f) {
  return __half(f);
}
inline __half __float2half_rz(float f) {
  return __half::simt_code(simt::round_to_zero<simt::float_to_half, simt::half_to_float>(f));
}
inline __half __float2half_rd(float f) {
  return __half::simt_code(simt::round_down<simt::float_to_half, simt::half_to_float>(f));
}
inline __half __float2half_ru(float f) {
  return __half::simt_code(simt::round_up<simt::float_to_half, simt::half_to_float>(f));
}
inline __half __double2half(double d) {
  return __half(d);
}
inline float __half2float(__half h) {
  return h.simt_widen();
}
inline __half __ushort_as_half(unsigned short code) {
  return __half::simt_code(code);
}
inline unsigned short __half_as_ushort(__half h) {
  return h.simt_code();
}
inline __half __short_as_half(short code) {
  return __half::simt_code(static_cast<std::uint16_t>(code));
}
inline short __half_as_short(__half h) {
  return static_cast<short>(h.simt_code());
}

inline __half2 __half2half2(__half h) {
  return __half2(h, h);
}
inline __half2 __halves2half2(__half low, __half high) {
  return __half2(low, high);
}
inline __half2 make_half2(__half x, __half y) {
  return __half2(x, y);
}
inline __half2 __float2half2_rn(float f) {
  return __half2(__half(f), __half(f));
}
inline __half2 __floats2half2_rn(float low, float high) {
  return __half2(__half(low), __half(high));
}
inline __half2 __float22half2_rn(float2 f) {
  return __half2(__half(f.x), __half(f.y));
}
inline float2 __half22float2(__half2 h) {
  return float2(h.x.simt_widen(), h.y.simt_widen());
}
inline __half __low2half(__half2 h) {
  return h.x;
}
inline __half __high2half(__half2 h) {
  return h.y;
}
inline __half2 __low2half2(__half2 h) {
  return __half2(h.x, h.x);
}
inline __half2 __high2half2(__half2 h) {
  return __half2(h.y, h.y);
}
inline __half2 __lowhigh2highlow(__half2 h) {
  return __half2(h.y, h.x);
}
inline __half2 __lows2half2(__half2 a, __half2 b) {
  return __half2(a.x, b.x);
}
inline __half2 __highs2half2(__half2 a, __half2 b) {
  return __half2(a.y, b.y);
}
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param)
