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

// TODO(7.1) decode: the three fields of a code, and what they stand for. encode: the sign; NaN; the number as a whole
// count of the format's steps, rounded; the code of that count; and numbers that are too large (about 36 lines).
// BEGIN 7.1
float decode(std::uint32_t code, const Format& format) {
  WORKBOOK_TODO(7.1);
}

std::uint32_t encode(float value, const Format& format, Rounding rounding, Overflow overflow) {
  WORKBOOK_TODO(7.1);
}
// END 7.1

Range range_of(const Format& format) {
  const double step = std::ldexp(1.0, 1 - format.bias() - format.mantissa_bits);
  return {decode(format.largest_code(), format), std::ldexp(step, format.mantissa_bits), step,
          std::ldexp(1.0, -format.mantissa_bits)};
}

}  // namespace ch07
