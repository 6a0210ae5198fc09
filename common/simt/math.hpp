// CUDA's arithmetic functions that a host compiler lacks. The fast functions have full float precision here; on the GPU
// they are off by a few more units in the last place.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier):
// CUDA's names begin with underscores.

#include <math.h>

#include <bit>
#include <cfloat>
#include <cstdint>

#include "common/simt/runtime.hpp"

namespace simt {
/// The effect of the ".ftz" forms on numbers below 2^-126.
inline float flush_to_zero(float x) {
  return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
}
/// ex2.approx.ftz.f32: 2^x, subnormal arguments and results flushed to zero.
inline float exp2_ftz(float x) {
  count_exponential();
  return flush_to_zero(exp2f(flush_to_zero(x)));
}
/// cvt.rna.tf32.f32: to 10 bits of fraction, nearest, ties away from zero.
inline float round_to_tf32(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return std::bit_cast<float>((bits + 0x1000u) & 0xffffe000u);
}
}  // namespace simt

inline float __expf(float x) {
  return exp2f(x * 1.4426950408889634f);
}
inline float __exp10f(float x) {
  return exp2f(x * 3.3219280948873623f);
}
inline float __logf(float x) {
  return logf(x);
}
inline float __log2f(float x) {
  return log2f(x);
}
inline float __log10f(float x) {
  return log10f(x);
}
inline float __powf(float x, float y) {
  return powf(x, y);
}
inline float __sinf(float x) {
  return sinf(x);
}
inline float __cosf(float x) {
  return cosf(x);
}
inline float __fdividef(float x, float y) {
  return fabsf(y) > 0x1p126f ? 0.0f * x : x / y;
}
inline float __frcp_rn(float x) {
  return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
  return sqrtf(x);
}
inline float __frsqrt_rn(float x) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(x)));
}
inline float rsqrtf(float x) {
  return static_cast<float>(1.0 / sqrt(static_cast<double>(x)));
}
inline float __saturatef(float x) {
  return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
inline float __fmaf_rn(float a, float b, float c) {
  return fmaf(a, b, c);
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float exp10f(float x) {
  return static_cast<float>(pow(10.0, static_cast<double>(x)));
}

inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(rintf(x));
}
inline int __float2int_rz(float x) {
  return static_cast<int>(x);
}
inline int __float2int_rd(float x) {
  return static_cast<int>(floorf(x));
}
inline int __float2int_ru(float x) {
  return static_cast<int>(ceilf(x));
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}

inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= (x >> i & 1u) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t(a) * b >> 32);
}

#define SIMT_MIN_AND_MAX(T)   \
  constexpr T min(T a, T b) { \
    return b < a ? b : a;     \
  }                           \
  constexpr T max(T a, T b) { \
    return a < b ? b : a;     \
  }
SIMT_MIN_AND_MAX(int)
SIMT_MIN_AND_MAX(unsigned)
SIMT_MIN_AND_MAX(long)
SIMT_MIN_AND_MAX(unsigned long)
SIMT_MIN_AND_MAX(long long)
#undef SIMT_MIN_AND_MAX
inline float min(float a, float b) {
  return fminf(a, b);
}
inline float max(float a, float b) {
  return fmaxf(a, b);
}
inline double min(double a, double b) {
  return fmin(a, b);
}
inline double max(double a, double b) {
  return fmax(a, b);
}
// NOLINTEND(bugprone-reserved-identifier)
