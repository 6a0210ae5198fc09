// __half and __half2, as in cuda_fp16.h. Conversions and arithmetic give the GPU's bits. (nvcc may contract a
// multiplication and an addition to one operation with one rounding; here only __hfma does that.)
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param):
// CUDA's names begin with underscores; macros take types; CUDA's functions take their 2 or 4 bytes by value.

#include "common/simt/sixteen_bit.hpp"

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
SIMT_SIXTEEN_BIT_CONVERSIONS(__half, __half2, half, 0x7c00u)
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param)
