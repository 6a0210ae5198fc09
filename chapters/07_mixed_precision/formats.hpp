// Chapter 7, formats: what a number becomes when it is stored in fp16, bf16, TF32 or FP8, and what it is when it is
// read back.
//
// All of these formats are built alike: a sign, an exponent, a mantissa. So one routine serves them all, told how many
// bits each has, how to round, and what to do with numbers that are too large.
//
// Source: IEEE 754-2019, sections 3.4 and 4.3; Micikevicius et al. 2022, "FP8 Formats for Deep Learning", table 1;
// PTX ISA, cvt.rna.tf32.f32; CUDA Math API, __nv_cvt_float_to_fp8.
// Test it: ./workbook test 7.1
#pragma once

#include <cstdint>

namespace ch07 {

/// A binary floating-point format: 1 sign bit, then the exponent, then the mantissa.
struct Format {
  const char* name;
  int exponent_bits, mantissa_bits;
  /// True: exponent bits that are all 1 mean infinity (mantissa 0) or NaN, as in IEEE 754. False, in E4M3 alone: they
  /// mean numbers like any others, but for the last code, which is NaN.
  bool has_infinity = true;

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  /// All ones but the sign: the largest code, a NaN in every format.
  std::uint32_t last_code() const { return sign_bit() - 1; }
  /// Exponent all ones, mantissa 0: infinity, in a format that has it.
  std::uint32_t infinity_code() const { return last_code() >> mantissa_bits << mantissa_bits; }
  /// The code of the largest finite number.
  std::uint32_t largest_code() const { return (has_infinity ? infinity_code() : last_code()) - 1; }
};

inline constexpr Format fp16{"fp16", 5, 10}, bf16{"bf16", 8, 7}, tf32{"TF32", 8, 10};
inline constexpr Format e4m3{"FP8 E4M3", 4, 3, /*has_infinity=*/false}, e5m2{"FP8 E5M2", 5, 2};

/// Where a number halfway between two codes goes.
enum class Rounding {
  to_even,       ///< to the code that ends in 0: IEEE 754's default, and what the hardware does but for TF32
  ties_to_away,  ///< away from zero: cvt.rna.tf32.f32, CUDA's conversion to TF32
};

/// What a number becomes that is too large, after rounding, for the format.
enum class Overflow {
  to_infinity,  ///< infinity, or NaN where there is none: CUDA's __NV_NOSAT
  saturate,     ///< the largest finite number, infinities too: CUDA's __NV_SATFINITE, for FP8
};

/// Exercise 7.1. The code of `value` in the low bits of the result. A NaN becomes the format's last code, with its
/// sign; zeros keep their sign. Numbers below the smallest normal one become subnormal, and zero below half of the
/// smallest of those.
std::uint32_t encode(float value, const Format& format, Rounding rounding = Rounding::to_even,
                     Overflow overflow = Overflow::to_infinity);

/// Exercise 7.1. What a code stands for. Every number of these formats is a float too, so nothing is rounded.
float decode(std::uint32_t code, const Format& format);

/// What a format can hold (given): the lesson's table, in float64.
struct Range {
  double largest, smallest_normal, smallest_subnormal;
  double epsilon;  ///< from 1 to the next number: 2^-mantissa_bits
};
Range range_of(const Format& format);

}  // namespace ch07
