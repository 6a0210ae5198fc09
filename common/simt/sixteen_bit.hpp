// The common part of CUDA's two 16-bit floating-point types: arithmetic and comparison with one rounding per operation,
// as the GPU's instructions. Used by half.hpp and bfloat16.hpp.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param):
// CUDA's names begin with underscores; macros take types; CUDA's functions take their 2 or 4 bytes by value.

#include <bit>
#include <cmath>
#include <cstdint>

#include "common/simt/half_codes.hpp"
#include "common/simt/vector_types.hpp"

namespace simt {

/// The float next to `value` whose last bit is 1 if `value` was not exactly a float ("rounding to odd"). Rounding it
/// again, to 22 bits or fewer, gives the same as rounding `value` itself.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero first
  return std::bit_cast<float>(bits | 1u);
}

/// a * b + c for numbers of at most 11 bits, as a float rounded to odd. The multiplication is exact in double; the
/// rounding error of the sum is merged into its last bit.
inline float fused_multiply_add(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, sum = product + c;
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double part = sum - product, lost = (product - (sum - part)) + (c - part);
  if (lost == 0) return round_to_odd(sum);
  std::uint64_t bits = std::bit_cast<std::uint64_t>(sum);
  if (!(bits & 1)) bits += (lost > 0) == (sum > 0) ? 1 : -1;
  return round_to_odd(std::bit_cast<double>(bits));
}

}  // namespace simt

// For a type T and its pair type T2. T converts to float explicitly through simt_widen and from float through
// simt_narrow.

/// A function of two numbers, and the same function for both numbers of a pair.
#define SIMT_SIXTEEN_BIT_FUNCTION(T, T2, name, name2, result) \
  inline T name(T a, T b) {                                   \
    return result;                                            \
  }                                                           \
  inline T2 name2(T2 a, T2 b) {                               \
    return T2(name(a.x, b.x), name(a.y, b.y));                \
  }
/// The same with an operator. The results for 11-bit numbers may be rounded to float first: with 24 bits the second
/// rounding does no harm.
#define SIMT_SIXTEEN_BIT_OPERATION(T, T2, name, name2, symbol)                                        \
  SIMT_SIXTEEN_BIT_FUNCTION(T, T2, name, name2, T::simt_narrow(a.simt_widen() symbol b.simt_widen())) \
  inline T operator symbol(T a, T b) {                                                                \
    return name(a, b);                                                                                \
  }                                                                                                   \
  inline T& operator symbol##=(T& a, T b) {                                                           \
    return a = name(a, b);                                                                            \
  }                                                                                                   \
  inline T2 operator symbol(const T2& a, const T2& b) {                                               \
    return name2(a, b);                                                                               \
  }                                                                                                   \
  inline T2& operator symbol##=(T2& a, const T2& b) {                                                 \
    return a = name2(a, b);                                                                           \
  }
/// The greater or the smaller number; the other one if one is NaN; +0 is greater than -0.
#define SIMT_SIXTEEN_BIT_CHOICE(T, T2, name, name2, symbol, negative)                                       \
  SIMT_SIXTEEN_BIT_FUNCTION(T, T2, name, name2,                                                             \
                            __hisnan(a) ? (__hisnan(b) ? T::simt_code(0x7fff) : b)                          \
                            : __hisnan(b) || a.simt_widen() symbol b.simt_widen() ||                        \
                                    (a.simt_widen() == b.simt_widen() && (a.simt_code() >> 15) == negative) \
                                ? a                                                                         \
                                : b)
#define SIMT_SIXTEEN_BIT_COMPARISON(T, name, symbol) \
  inline bool name(T a, T b) {                       \
    return a.simt_widen() symbol b.simt_widen();     \
  }                                                  \
  inline bool operator symbol(T a, T b) {            \
    return name(a, b);                               \
  }
/// Modifies the bits of a number's code, and the same for a pair.
#define SIMT_SIXTEEN_BIT_SIGN(T, T2, name, name2, change)                  \
  inline T name(T a) {                                                     \
    return T::simt_code(static_cast<std::uint16_t>(a.simt_code() change)); \
  }                                                                        \
  inline T2 name2(T2 a) {                                                  \
    return T2(name(a.x), name(a.y));                                       \
  }

#define SIMT_SIXTEEN_BIT_ARITHMETIC(T, T2)                                                           \
  SIMT_SIXTEEN_BIT_OPERATION(T, T2, __hadd, __hadd2, +)                                              \
  SIMT_SIXTEEN_BIT_OPERATION(T, T2, __hsub, __hsub2, -)                                              \
  SIMT_SIXTEEN_BIT_OPERATION(T, T2, __hmul, __hmul2, *)                                              \
  SIMT_SIXTEEN_BIT_OPERATION(T, T2, __hdiv, __h2div, /)                                              \
  SIMT_SIXTEEN_BIT_COMPARISON(T, __heq, ==)                                                          \
  SIMT_SIXTEEN_BIT_COMPARISON(T, __hneu, !=)                                                         \
  SIMT_SIXTEEN_BIT_COMPARISON(T, __hlt, <)                                                           \
  SIMT_SIXTEEN_BIT_COMPARISON(T, __hle, <=)                                                          \
  SIMT_SIXTEEN_BIT_COMPARISON(T, __hgt, >)                                                           \
  SIMT_SIXTEEN_BIT_COMPARISON(T, __hge, >=)                                                          \
  SIMT_SIXTEEN_BIT_SIGN(T, T2, __hneg, __hneg2, ^0x8000u)                                            \
  SIMT_SIXTEEN_BIT_SIGN(T, T2, __habs, __habs2, &0x7fffu)                                            \
  inline T __hadd_rn(T a, T b) {                                                                     \
    return __hadd(a, b);                                                                             \
  }                                                                                                  \
  inline T __hsub_rn(T a, T b) {                                                                     \
    return __hsub(a, b);                                                                             \
  }                                                                                                  \
  inline T __hmul_rn(T a, T b) {                                                                     \
    return __hmul(a, b);                                                                             \
  }                                                                                                  \
  inline T __hfma(T a, T b, T c) {                                                                   \
    return T::simt_narrow(simt::fused_multiply_add(a.simt_widen(), b.simt_widen(), c.simt_widen())); \
  }                                                                                                  \
  inline T2 __hfma2(T2 a, T2 b, T2 c) {                                                              \
    return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));                                         \
  }                                                                                                  \
  inline bool __hne(T a, T b) {                                                                      \
    return a.simt_widen() < b.simt_widen() || a.simt_widen() > b.simt_widen();                       \
  }                                                                                                  \
  inline bool __hisnan(T a) {                                                                        \
    return a.simt_widen() != a.simt_widen();                                                         \
  }                                                                                                  \
  SIMT_SIXTEEN_BIT_CHOICE(T, T2, __hmax, __hmax2, >, 0)                                              \
  SIMT_SIXTEEN_BIT_CHOICE(T, T2, __hmin, __hmin2, <, 1)                                              \
  inline T operator-(T a) {                                                                          \
    return __hneg(a);                                                                                \
  }                                                                                                  \
  inline T operator+(T a) {                                                                          \
    return a;                                                                                        \
  }

/// Conversions from and to float, and from and to pairs, by CUDA's names, in which `word` is the type. `infinity`: its
/// code.
#define SIMT_SIXTEEN_BIT_CONVERSIONS(T, T2, word, infinity)                                    \
  inline bool __hisinf(T a) {                                                                  \
    return (a.simt_code() & 0x7fffu) == infinity;                                              \
  }                                                                                            \
  inline T __float2##word(float f) {                                                           \
    return T(f);                                                                               \
  }                                                                                            \
  inline T __float2##word##_rn(float f) {                                                      \
    return T(f);                                                                               \
  }                                                                                            \
  inline T __float2##word##_rz(float f) {                                                      \
    return T::simt_code(simt::round_to_zero<simt::float_to_##word, simt::word##_to_float>(f)); \
  }                                                                                            \
  inline T __float2##word##_rd(float f) {                                                      \
    return T::simt_code(simt::round_down<simt::float_to_##word, simt::word##_to_float>(f));    \
  }                                                                                            \
  inline T __float2##word##_ru(float f) {                                                      \
    return T::simt_code(simt::round_up<simt::float_to_##word, simt::word##_to_float>(f));      \
  }                                                                                            \
  inline T __double2##word(double d) {                                                         \
    return T(d);                                                                               \
  }                                                                                            \
  inline float __##word##2float(T h) {                                                         \
    return h.simt_widen();                                                                     \
  }                                                                                            \
  inline T __ushort_as_##word(unsigned short code) {                                           \
    return T::simt_code(code);                                                                 \
  }                                                                                            \
  inline unsigned short __##word##_as_ushort(T h) {                                            \
    return h.simt_code();                                                                      \
  }                                                                                            \
  inline T __short_as_##word(short code) {                                                     \
    return T::simt_code(static_cast<std::uint16_t>(code));                                     \
  }                                                                                            \
  inline short __##word##_as_short(T h) {                                                      \
    return static_cast<short>(h.simt_code());                                                  \
  }                                                                                            \
  inline T2 __##word##2##word##2(T h) {                                                        \
    return T2(h, h);                                                                           \
  }                                                                                            \
  inline T2 __halves2##word##2(T low, T high) {                                                \
    return T2(low, high);                                                                      \
  }                                                                                            \
  inline T2 make_##word##2(T x, T y) {                                                         \
    return T2(x, y);                                                                           \
  }                                                                                            \
  inline T2 __float2##word##2_rn(float f) {                                                    \
    return T2(T(f), T(f));                                                                     \
  }                                                                                            \
  inline T2 __floats2##word##2_rn(float low, float high) {                                     \
    return T2(T(low), T(high));                                                                \
  }                                                                                            \
  inline T2 __float22##word##2_rn(float2 f) {                                                  \
    return T2(T(f.x), T(f.y));                                                                 \
  }                                                                                            \
  inline float2 __##word##22float2(T2 h) {                                                     \
    return float2(h.x.simt_widen(), h.y.simt_widen());                                         \
  }                                                                                            \
  inline float __low2float(T2 h) {                                                             \
    return h.x.simt_widen();                                                                   \
  }                                                                                            \
  inline float __high2float(T2 h) {                                                            \
    return h.y.simt_widen();                                                                   \
  }                                                                                            \
  inline T __low2##word(T2 h) {                                                                \
    return h.x;                                                                                \
  }                                                                                            \
  inline T __high2##word(T2 h) {                                                               \
    return h.y;                                                                                \
  }                                                                                            \
  inline T2 __low2##word##2(T2 h) {                                                            \
    return T2(h.x, h.x);                                                                       \
  }                                                                                            \
  inline T2 __high2##word##2(T2 h) {                                                           \
    return T2(h.y, h.y);                                                                       \
  }                                                                                            \
  inline T2 __lowhigh2highlow(T2 h) {                                                          \
    return T2(h.y, h.x);                                                                       \
  }                                                                                            \
  inline T2 __lows2##word##2(T2 a, T2 b) {                                                     \
    return T2(a.x, b.x);                                                                       \
  }                                                                                            \
  inline T2 __highs2##word##2(T2 a, T2 b) {                                                    \
    return T2(a.y, b.y);                                                                       \
  }

/// The members of T: a 16-bit code with implicit conversions from and to float, as in CUDA's types. The assignment is
/// explicit, because the compiler does not instrument the store of a struct that a call returns: y[i] = f(x).
#define SIMT_SIXTEEN_BIT_MEMBERS(T, widen, narrow)               \
  std::uint16_t __x;                                             \
  T() = default;                                                 \
  T(const T&) = default;                                         \
  __attribute__((always_inline)) T& operator=(const T& other) {  \
    __x = other.__x;                                             \
    return *this;                                                \
  }                                                              \
  T(float value) : __x(narrow(value)) {}                         \
  T(double value) : __x(narrow(simt::round_to_odd(value))) {}    \
  T(int value) : T(static_cast<double>(value)) {}                \
  T(unsigned value) : T(static_cast<double>(value)) {}           \
  T(long long value) : T(static_cast<double>(value)) {}          \
  T(unsigned long long value) : T(static_cast<double>(value)) {} \
  operator float() const {                                       \
    return widen(__x);                                           \
  }                                                              \
  float simt_widen() const {                                     \
    return widen(__x);                                           \
  }                                                              \
  std::uint16_t simt_code() const {                              \
    return __x;                                                  \
  }                                                              \
  static T simt_narrow(float value) {                            \
    return T(value);                                             \
  }                                                              \
  static T simt_code(std::uint16_t code) {                       \
    T result;                                                    \
    result.__x = code;                                           \
    return result;                                               \
  }
// NOLINTEND(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param)
