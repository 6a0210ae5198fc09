// Chapter 7, formats: one routine to encode and one to decode, for every format in formats.hpp.
//
// Source: IEEE 754-2019, sections 3.4 and 4.3; Micikevicius et al. 2022, "FP8 Formats for Deep Learning", table 1.
// Test it: ./workbook test 7.1
#include "formats.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/cuda/todo.hpp"

namespace ch07 {

// TODO(7.1) decode: extract the three fields, compute the value. encode: the sign; NaN; the number of the format's
// steps, rounded to an integer; the code of that number; overflow (about 36 lines).
// STUB: float decode(std::uint32_t code, const Format& format) {
// STUB:   WORKBOOK_TODO(7.1);
// STUB: }
// STUB:
// STUB: std::uint32_t encode(float value, const Format& format, Rounding rounding, Overflow overflow) {
// STUB:   WORKBOOK_TODO(7.1);
// STUB: }
// BEGIN 7.1
float decode(std::uint32_t code, const Format& format) {
  const std::uint32_t magnitude = code & format.last_code();
  const std::uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  const int exponent = int(magnitude >> format.mantissa_bits);
  const int step = std::max(exponent, 1) - format.bias() - format.mantissa_bits;  // log2 of the last mantissa bit

  float value = std::ldexp(float(mantissa), step);  // exponent 0: a subnormal number, or zero
  if (exponent > 0) value = std::ldexp(float(mantissa + (1u << format.mantissa_bits)), step);  // with the leading 1
  if (magnitude > format.largest_code()) {
    const bool infinite = format.has_infinity && magnitude == format.infinity_code();
    value = infinite ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  return code & format.sign_bit() ? -value : value;
}

std::uint32_t encode(float value, const Format& format, Rounding rounding, Overflow overflow) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = bits >> 31 ? format.sign_bit() : 0;
  if (magnitude > 0x7f800000u) return sign | format.last_code();  // NaN

  // |value| = significand · 2^(exponent - 23), exactly. A subnormal float has no leading 1.
  const int exponent = std::max(int(magnitude >> 23), 1) - 127;
  const std::uint32_t significand = (magnitude & 0x7fffffu) | (magnitude >= 0x00800000u ? 0x800000u : 0u);

  // The format's step at this size is 2^(binade - mantissa_bits). The subnormal numbers have the smallest one.
  const int lowest = 1 - format.bias(), binade = std::max(exponent, lowest);
  const int shift = binade - format.mantissa_bits - (exponent - 23);

  // |value| in steps, rounded. A shift of 25 or more means less than half a step, so 25 gives 0 for all of them.
  const int s = std::min(shift, 25);
  const std::uint32_t half = 1u << (s - 1), odd = significand >> s & 1u;
  const std::uint32_t steps = (significand + (rounding == Rounding::to_even ? half - 1 + odd : half)) >> s;

  // A normal number has at least 2^mantissa_bits steps, its leading 1, which raises the exponent field by one. So does
  // a carry into the next power of two.
  const std::uint32_t code = (std::uint32_t(binade - lowest) << format.mantissa_bits) + steps;

  if (code <= format.largest_code()) return sign | code;
  if (overflow == Overflow::saturate) return sign | format.largest_code();
  return sign | (format.has_infinity ? format.infinity_code() : format.last_code());
}
// END 7.1

Range range_of(const Format& format) {
  const double step = std::ldexp(1.0, 1 - format.bias() - format.mantissa_bits);
  return {decode(format.largest_code(), format), std::ldexp(step, format.mantissa_bits), step,
          std::ldexp(1.0, -format.mantissa_bits)};
}

}  // namespace ch07
