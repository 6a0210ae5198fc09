// Chapter 7, formats: conversion of floats to the codes of fp16, bf16, TF32 and FP8, and back.
//
// Every format has a sign, an exponent and a mantissa. So one routine serves all of them. It is configured with the
// number of bits of each field, the rounding, and the handling of overflow.
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
  /// True: exponent bits that are all 1 mean infinity (mantissa 0) or NaN, as in IEEE 754. False, in E4M3 only: they
  /// are the exponent of ordinary numbers, except for the last code, which is NaN.
  bool has_infinity = true;

  int bits() const { return 1 + exponent_bits + mantissa_bits; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  /// The largest code without the sign, all ones: a NaN in every format.
  std::uint32_t last_code() const { return sign_bit() - 1; }
  /// Exponent all ones, mantissa 0: infinity, if the format has one.
  std::uint32_t infinity_code() const { return last_code() >> mantissa_bits << mantissa_bits; }
  /// The code of the largest finite number.
  std::uint32_t largest_code() const { return (has_infinity ? infinity_code() : last_code()) - 1; }
};

inline constexpr Format fp16{"fp16", 5, 10}, bf16{"bf16", 8, 7}, tf32{"TF32", 8, 10};
inline constexpr Format e4m3{"FP8 E4M3", 4, 3, /*has_infinity=*/false}, e5m2{"FP8 E5M2", 5, 2};

/// How a number halfway between two codes is rounded.
enum class Rounding {
  to_even,       ///< to the even code: the default of IEEE 754, and of the hardware except for TF32
  ties_to_away,  ///< away from zero: cvt.rna.tf32.f32, CUDA's conversion to TF32
};

/// The result for a number that is too large for the format after rounding.
enum class Overflow {
  to_infinity,  ///< infinity, or NaN in a format without infinity: CUDA's __NV_NOSAT
  saturate,     ///< the largest finite number, for infinity too: CUDA's __NV_SATFINITE, for FP8
};

/// Exercise 7.1. Returns the code of `value` in the low bits. A NaN becomes the format's last code, with its sign;
/// zeros keep their sign. Numbers below the smallest normal number become subnormal; those below half of the smallest
/// subnormal number become zero.
std::uint32_t encode(float value, const Format& format, Rounding rounding = Rounding::to_even,
                     Overflow overflow = Overflow::to_infinity);

/// Exercise 7.1. Returns the value of a code. Every number of these formats is a float too, so nothing is rounded.
float decode(std::uint32_t code, const Format& format);

/// The range of a format (given): the lesson's table, in float64.
struct Range {
  double largest, smallest_normal, smallest_subnormal;
  double epsilon;  ///< from 1 to the next number: 2^-mantissa_bits
};
Range range_of(const Format& format);

}  // namespace ch07
