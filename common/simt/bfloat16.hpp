// __nv_bfloat16 and __nv_bfloat162, as in cuda_bf16.h.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param):
// CUDA's names begin with underscores; macros take types; CUDA's functions take their 2 or 4 bytes by value.

#include "common/simt/sixteen_bit.hpp"

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
SIMT_SIXTEEN_BIT_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, bfloat16, 0x7f80u)
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param)
