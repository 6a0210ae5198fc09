// __nv_bfloat16 and __nv_bfloat162, as in cuda_bf16.h.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param):
// CUDA's names begin with underscores; macros take types; CUDA's functions take their 2 or 4 bytes by value.

#include "common/simt/half_codes.hpp"
#include "common/simt/sixteen_bit.hpp"
#include "common/simt/vector_types.hpp"

struct alignas(2) __nv_bfloat16 {
  SIMT_SIXTEEN_BIT_MEMBERS(__nv_bfloat16, simt::bfloat16_to_float, simt::float_to_bfloat16)
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
  SIMT_COPIED_WHOLE(__nv_bfloat162)
  __nv_bfloat162(__nv_bfloat16 x_, __nv_bfloat16 y_) : x(x_), y(y_) {}
};

using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

SIMT_SIXTEEN_BIT_ARITHMETIC(__nv_bfloat16, __nv_bfloat162)

inline bool __hisinf(__nv_bfloat16 a) {
  return (a.simt_code() & 0x7fffu) == 0x7f80u;
}
inline __nv_bfloat16 __float2bfloat16(float f) {
  return __nv_bfloat16(f);
}
inline __nv_bfloat16 __float2bfloat16_rn(float f) {
  return __nv_bfloat16(f);
}
inline __nv_bfloat16 __float2bfloat16_rz(float f) {
  return __nv_bfloat16::simt_code(simt::round_to_zero<simt::float_to_bfloat16, simt::bfloat16_to_float>(f));
}
inline __nv_bfloat16 __float2bfloat16_rd(float f) {
  return __nv_bfloat16::simt_code(simt::round_down<simt::float_to_bfloat16, simt::bfloat16_to_float>(f));
}
inline __nv_bfloat16 __float2bfloat16_ru(float f) {
  return __nv_bfloat16::simt_code(simt::round_up<simt::float_to_bfloat16, simt::bfloat16_to_float>(f));
}
inline __nv_bfloat16 __double2bfloat16(double d) {
  return __nv_bfloat16(d);
}
inline float __bfloat162float(__nv_bfloat16 h) {
  return h.simt_widen();
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short code) {
  return __nv_bfloat16::simt_code(code);
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 h) {
  return h.simt_code();
}

inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 h) {
  return __nv_bfloat162(h, h);
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 low, __nv_bfloat16 high) {
  return __nv_bfloat162(low, high);
}
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
  return __nv_bfloat162(x, y);
}
inline __nv_bfloat162 __float2bfloat162_rn(float f) {
  return __nv_bfloat162(f, f);
}
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  return __nv_bfloat162(low, high);
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 f) {
  return __nv_bfloat162(f.x, f.y);
}
inline float2 __bfloat1622float2(__nv_bfloat162 h) {
  return float2(h.x.simt_widen(), h.y.simt_widen());
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 h) {
  return h.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 h) {
  return h.y;
}
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param)
