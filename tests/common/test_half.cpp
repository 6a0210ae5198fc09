// float16, bfloat16 and e4m3: all codes, and rounding at and around every halfway point; e4m3 by blocks.

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/element.hpp"
#include "common/attention/half.hpp"

using namespace workbook;

namespace {

/// One format: its two conversions and where its numbers end.
struct Format {
  float (*to_float)(std::uint16_t);
  std::uint16_t (*from_float)(float);
  std::uint16_t infinity;
};
const Format fp16{half_to_float, float_to_half, 0x7c00};
const Format bf16{bfloat16_to_float, float_to_bfloat16, 0x7f80};

/// The next float above or below.
float up(float x) {
  return std::nextafter(x, std::numeric_limits<float>::infinity());
}
float down(float x) {
  return std::nextafter(x, -std::numeric_limits<float>::infinity());
}

}  // namespace

TEST_CASE("every code survives the way to float and back, a NaN stays a NaN of its sign") {
  for (const Format& format : {fp16, bf16})
    for (std::uint32_t code = 0; code < 65536; ++code) {
      const float value = format.to_float(std::uint16_t(code));
      const std::uint16_t back = format.from_float(value);
      if ((code & 0x7fff) > format.infinity) {
        REQUIRE(std::isnan(value));
        REQUIRE((back & 0x7fff) > format.infinity);
        REQUIRE((back & 0x8000) == (code & 0x8000));
      } else if (back != code) {
        FAIL("code " << code << " comes back as " << back);
      }
    }
}

TEST_CASE("rounding goes to the nearest, ties to even, at every halfway point") {
  for (const Format& format : {fp16, bf16}) {
    int halfway_points = 0;
    for (std::uint16_t code = 0; code < format.infinity; ++code) {
      // In double the halfway point is exact. Above the largest finite number the next step would be 2^16 or 2^128.
      const double low = format.to_float(code);
      const double high = code + 1 == format.infinity ? (format.infinity == 0x7c00 ? 0x1p16 : 0x1p128)
                                                      : format.to_float(std::uint16_t(code + 1));
      const float half = float((low + high) / 2);
      if (double(half) != (low + high) / 2) continue;  // below the smallest float: not representable
      const std::uint16_t even = code % 2 == 0 ? code : std::uint16_t(code + 1);
      const bool good = format.from_float(half) == even && format.from_float(down(half)) == code &&
                        format.from_float(up(half)) == code + 1 && format.from_float(-half) == (even | 0x8000) &&
                        format.from_float(-down(half)) == (code | 0x8000);
      if (!good) FAIL("around the halfway point above code " << code);
      ++halfway_points;
    }
    CHECK(halfway_points >= format.infinity - 1);
  }
}

TEST_CASE("float16 has the range that the book gives") {
  CHECK(half_to_float(0x0001) == 0x1p-24f);  // 5.96e-8
  CHECK(half_to_float(0x0400) == 0x1p-14f);  // 6.10e-5
  CHECK(half_to_float(0x7bff) == 65504.0f);
  CHECK(half_to_float(0x3c00) == 1.0f);
  CHECK(half_to_float(0xc000) == -2.0f);
  CHECK(std::isinf(half_to_float(0x7c00)));
  CHECK(float_to_half(65519.996f) == 0x7bff);
  CHECK(float_to_half(65520.0f) == 0x7c00);
  CHECK(float_to_half(1e10f) == 0x7c00);
  CHECK(float_to_half(-1e10f) == 0xfc00);
  CHECK(float_to_half(0x1p-25f) == 0x0000);  // half of the smallest: to even
  CHECK(float_to_half(up(0x1p-25f)) == 0x0001);
  CHECK(float_to_half(1e-30f) == 0x0000);
  CHECK(float_to_half(-1e-30f) == 0x8000);
  CHECK(float_to_half(-0.0f) == 0x8000);
  CHECK(float_to_half(std::numeric_limits<float>::denorm_min()) == 0x0000);
  CHECK(float_to_half(std::numeric_limits<float>::infinity()) == 0x7c00);
  CHECK(std::signbit(half_to_float(0x8000)));
}

TEST_CASE("bfloat16 has the range of float and eight bits") {
  CHECK(bfloat16_to_float(0x3f80) == 1.0f);
  CHECK(float_to_bfloat16(1.00390625f) == 0x3f80);  // halfway between 1 and 1.0078125: to even
  CHECK(float_to_bfloat16(1.01171875f) == 0x3f82);
  CHECK(float_to_bfloat16(std::numeric_limits<float>::max()) == 0x7f80);
  CHECK(float_to_bfloat16(-std::numeric_limits<float>::max()) == 0xff80);
  CHECK(float_to_bfloat16(-0.0f) == 0x8000);
  CHECK(float_to_bfloat16(std::numeric_limits<float>::infinity()) == 0x7f80);
}

TEST_CASE("a NaN with its payload in the low bits does not become an infinity") {
  const float nan = std::bit_cast<float>(0x7f800001u);
  CHECK(std::isnan(half_to_float(float_to_half(nan))));
  CHECK(std::isnan(bfloat16_to_float(float_to_bfloat16(nan))));
  CHECK(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(0x7fffffffu)))));
  CHECK(std::isnan(half_to_float(float_to_half(std::bit_cast<float>(0xffffffffu)))));
}

TEST_CASE("e4m3 rounds to the nearest of its 127 numbers, and to 448 beyond") {
  const auto number = [](int code) {  // of a code below 127; its step doubles every 8 codes
    return code < 8 ? std::ldexp(double(code), -9) : std::ldexp(double(8 + code % 8), code / 8 - 10);
  };
  CHECK(number(126) == 448);
  for (int code = 0; code < 126; ++code) {
    const double low = number(code), high = number(code + 1), even = code % 2 == 0 ? low : high;
    const auto half = float((low + high) / 2);
    INFO("around the halfway point above " << low);
    CHECK(rounded_to_e4m3(float(low)) == low);
    CHECK(rounded_to_e4m3(half) == even);
    CHECK(rounded_to_e4m3(-half) == -even);
    CHECK(rounded_to_e4m3(down(half)) == low);
    CHECK(rounded_to_e4m3(up(half)) == high);
  }
  for (const float large : {448.0f, 463.0f, 465.0f, 1e9f, std::numeric_limits<float>::infinity()}) {
    CHECK(rounded_to_e4m3(large) == 448);
    CHECK(rounded_to_e4m3(-large) == -448);
  }
  CHECK(std::isnan(rounded_to_e4m3(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("a block of 128 rows is rounded with the least power of two that fits") {
  CHECK(float8_scale(0) == 1);
  CHECK(float8_scale(448) == 1);
  CHECK(float8_scale(up(448)) == 2);
  CHECK(float8_scale(3.3f) == 0x1p-7f);
  CHECK(float8_scale(0x1p-24f) == 0x1p-32f);
  // Two blocks of a head, the second of two rows, and two heads: an outlier changes its own block alone.
  Tensor<float> x({1, 2, 130, 1}, 0.3f);
  x(0, 0, 129, 0) = 30000;
  x(0, 1, 5, 0) = std::numeric_limits<float>::quiet_NaN();
  const Tensor<float> rounded = rounded_in_blocks(x);
  CHECK(rounded(0, 0, 0, 0) == 0.3125f);
  CHECK(rounded(0, 0, 128, 0) == 0.25f);  // the scale is 128, so its smallest step is 1/4
  CHECK(rounded(0, 0, 129, 0) == 30720);
  CHECK(std::isnan(rounded(0, 1, 5, 0)));
  CHECK(rounded(0, 1, 4, 0) == 0.3125f);
  const Tensor<float> again = rounded_in_blocks(rounded);
  CHECK(again(0, 0, 129, 0) == 30720);
  CHECK(again(0, 1, 4, 0) == 0.3125f);
}
