// What CUDA's two 16-bit floating-point types have in common: arithmetic and comparison, one rounding an operation, as
// the GPU's instructions do. Used by half.hpp and bfloat16.hpp.
#pragma once

// NOLINTBEGIN(bugprone-reserved-identifier,bugprone-macro-parentheses,performance-unnecessary-value-param):
// CUDA's names begin with underscores; macros take types; CUDA's functions take their 2 or 4 bytes by value.

#include <bit>
#include <cmath>
#include <cstdint>

namespace simt {

/// A float whose last bit is 1 if `value` was not exactly a float ("rounding to odd"). Rounding it once more, to 22
/// bits or fewer, gives what rounding `value` itself would give.
inline float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero first
  return std::bit_cast<float>(bits | 1u);
}

/// a * b + c for numbers of at most 11 bits, as a float that is rounded to odd: the product is exact in double; what
/// the sum loses is put into its last bit.
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

/// Arithmetic of type T and its pair T2, where T converts to float explicitly through simt_widen and from float through
/// simt_narrow. Sums, products and quotients of 11-bit numbers may be rounded to float first: 24 bits are enough for
/// the second rounding to be harmless.
#define SIMT_SIXTEEN_BIT_ARITHMETIC(T, T2)                                                                             \
  inline T __hadd(T a, T b) {                                                                                          \
    return T::simt_narrow(a.simt_widen() + b.simt_widen());                                                            \
  }                                                                                                                    \
  inline T __hsub(T a, T b) {                                                                                          \
    return T::simt_narrow(a.simt_widen() - b.simt_widen());                                                            \
  }                                                                                                                    \
  inline T __hmul(T a, T b) {                                                                                          \
    return T::simt_narrow(a.simt_widen() * b.simt_widen());                                                            \
  }                                                                                                                    \
  inline T __hdiv(T a, T b) {                                                                                          \
    return T::simt_narrow(a.simt_widen() / b.simt_widen());                                                            \
  }                                                                                                                    \
  inline T __hadd_rn(T a, T b) {                                                                                       \
    return __hadd(a, b);                                                                                               \
  }                                                                                                                    \
  inline T __hsub_rn(T a, T b) {                                                                                       \
    return __hsub(a, b);                                                                                               \
  }                                                                                                                    \
  inline T __hmul_rn(T a, T b) {                                                                                       \
    return __hmul(a, b);                                                                                               \
  }                                                                                                                    \
  inline T __hfma(T a, T b, T c) {                                                                                     \
    return T::simt_narrow(simt::fused_multiply_add(a.simt_widen(), b.simt_widen(), c.simt_widen()));                   \
  }                                                                                                                    \
  inline T __hneg(T a) {                                                                                               \
    return T::simt_code(static_cast<std::uint16_t>(a.simt_code() ^ 0x8000u));                                          \
  }                                                                                                                    \
  inline T __habs(T a) {                                                                                               \
    return T::simt_code(static_cast<std::uint16_t>(a.simt_code() & 0x7fffu));                                          \
  }                                                                                                                    \
  inline bool __heq(T a, T b) {                                                                                        \
    return a.simt_widen() == b.simt_widen();                                                                           \
  }                                                                                                                    \
  inline bool __hne(T a, T b) {                                                                                        \
    return a.simt_widen() < b.simt_widen() || a.simt_widen() > b.simt_widen();                                         \
  }                                                                                                                    \
  inline bool __hlt(T a, T b) {                                                                                        \
    return a.simt_widen() < b.simt_widen();                                                                            \
  }                                                                                                                    \
  inline bool __hle(T a, T b) {                                                                                        \
    return a.simt_widen() <= b.simt_widen();                                                                           \
  }                                                                                                                    \
  inline bool __hgt(T a, T b) {                                                                                        \
    return a.simt_widen() > b.simt_widen();                                                                            \
  }                                                                                                                    \
  inline bool __hge(T a, T b) {                                                                                        \
    return a.simt_widen() >= b.simt_widen();                                                                           \
  }                                                                                                                    \
  inline bool __hneu(T a, T b) {                                                                                       \
    return a.simt_widen() != b.simt_widen();                                                                           \
  }                                                                                                                    \
  inline bool __hisnan(T a) {                                                                                          \
    return a.simt_widen() != a.simt_widen();                                                                           \
  }                                                                                                                    \
  inline T __hmax(T a, T b) { /* the number if the other is NaN; +0 above -0 */                                        \
    if (__hisnan(a) || __hisnan(b)) {                                                                                  \
      return __hisnan(a) ? (__hisnan(b) ? T::simt_code(0x7fff) : b) : a;                                               \
    }                                                                                                                  \
    return a.simt_widen() > b.simt_widen() || (a.simt_widen() == b.simt_widen() && !(a.simt_code() & 0x8000u)) ? a     \
                                                                                                               : b;    \
  }                                                                                                                    \
  inline T __hmin(T a, T b) {                                                                                          \
    if (__hisnan(a) || __hisnan(b)) {                                                                                  \
      return __hisnan(a) ? (__hisnan(b) ? T::simt_code(0x7fff) : b) : a;                                               \
    }                                                                                                                  \
    return a.simt_widen() < b.simt_widen() || (a.simt_widen() == b.simt_widen() && (a.simt_code() & 0x8000u)) ? a : b; \
  }                                                                                                                    \
  inline T operator+(T a, T b) {                                                                                       \
    return __hadd(a, b);                                                                                               \
  }                                                                                                                    \
  inline T operator-(T a, T b) {                                                                                       \
    return __hsub(a, b);                                                                                               \
  }                                                                                                                    \
  inline T operator*(T a, T b) {                                                                                       \
    return __hmul(a, b);                                                                                               \
  }                                                                                                                    \
  inline T operator/(T a, T b) {                                                                                       \
    return __hdiv(a, b);                                                                                               \
  }                                                                                                                    \
  inline T operator-(T a) {                                                                                            \
    return __hneg(a);                                                                                                  \
  }                                                                                                                    \
  inline T operator+(T a) {                                                                                            \
    return a;                                                                                                          \
  }                                                                                                                    \
  inline T& operator+=(T& a, T b) {                                                                                    \
    return a = __hadd(a, b);                                                                                           \
  }                                                                                                                    \
  inline T& operator-=(T& a, T b) {                                                                                    \
    return a = __hsub(a, b);                                                                                           \
  }                                                                                                                    \
  inline T& operator*=(T& a, T b) {                                                                                    \
    return a = __hmul(a, b);                                                                                           \
  }                                                                                                                    \
  inline T& operator/=(T& a, T b) {                                                                                    \
    return a = __hdiv(a, b);                                                                                           \
  }                                                                                                                    \
  inline bool operator==(T a, T b) {                                                                                   \
    return __heq(a, b);                                                                                                \
  }                                                                                                                    \
  inline bool operator!=(T a, T b) {                                                                                   \
    return __hneu(a, b);                                                                                               \
  }                                                                                                                    \
  inline bool operator<(T a, T b) {                                                                                    \
    return __hlt(a, b);                                                                                                \
  }                                                                                                                    \
  inline bool operator<=(T a, T b) {                                                                                   \
    return __hle(a, b);                                                                                                \
  }                                                                                                                    \
  inline bool operator>(T a, T b) {                                                                                    \
    return __hgt(a, b);                                                                                                \
  }                                                                                                                    \
  inline bool operator>=(T a, T b) {                                                                                   \
    return __hge(a, b);                                                                                                \
  }                                                                                                                    \
  inline T2 __hadd2(T2 a, T2 b) {                                                                                      \
    return T2(__hadd(a.x, b.x), __hadd(a.y, b.y));                                                                     \
  }                                                                                                                    \
  inline T2 __hsub2(T2 a, T2 b) {                                                                                      \
    return T2(__hsub(a.x, b.x), __hsub(a.y, b.y));                                                                     \
  }                                                                                                                    \
  inline T2 __hmul2(T2 a, T2 b) {                                                                                      \
    return T2(__hmul(a.x, b.x), __hmul(a.y, b.y));                                                                     \
  }                                                                                                                    \
  inline T2 __h2div(T2 a, T2 b) {                                                                                      \
    return T2(__hdiv(a.x, b.x), __hdiv(a.y, b.y));                                                                     \
  }                                                                                                                    \
  inline T2 __hfma2(T2 a, T2 b, T2 c) {                                                                                \
    return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));                                                           \
  }                                                                                                                    \
  inline T2 __hneg2(T2 a) {                                                                                            \
    return T2(__hneg(a.x), __hneg(a.y));                                                                               \
  }                                                                                                                    \
  inline T2 __habs2(T2 a) {                                                                                            \
    return T2(__habs(a.x), __habs(a.y));                                                                               \
  }                                                                                                                    \
  inline T2 __hmax2(T2 a, T2 b) {                                                                                      \
    return T2(__hmax(a.x, b.x), __hmax(a.y, b.y));                                                                     \
  }                                                                                                                    \
  inline T2 __hmin2(T2 a, T2 b) {                                                                                      \
    return T2(__hmin(a.x, b.x), __hmin(a.y, b.y));                                                                     \
  }                                                                                                                    \
  inline T2 operator+(const T2& a, const T2& b) {                                                                      \
    return __hadd2(a, b);                                                                                              \
  }                                                                                                                    \
  inline T2 operator-(const T2& a, const T2& b) {                                                                      \
    return __hsub2(a, b);                                                                                              \
  }                                                                                                                    \
  inline T2 operator*(const T2& a, const T2& b) {                                                                      \
    return __hmul2(a, b);                                                                                              \
  }                                                                                                                    \
  inline T2 operator/(const T2& a, const T2& b) {                                                                      \
    return __h2div(a, b);                                                                                              \
  }                                                                                                                    \
  inline T2& operator+=(T2& a, const T2& b) {                                                                          \
    return a = __hadd2(a, b);                                                                                          \
  }                                                                                                                    \
  inline T2& operator*=(T2& a, const T2& b) {                                                                          \
    return a = __hmul2(a, b);                                                                                          \
  }                                                                                                                    \
  inline float __low2float(T2 a) {                                                                                     \
    return a.x.simt_widen();                                                                                           \
  }                                                                                                                    \
  inline float __high2float(T2 a) {                                                                                    \
    return a.y.simt_widen();                                                                                           \
  }

/// The members of T: a code of 16 bits, converting implicitly from and to float as CUDA's types do. Its assignment is
/// written out, since the compiler instruments no store of a struct that a call has returned: y[i] = f(x).
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
