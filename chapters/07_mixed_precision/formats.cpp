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
