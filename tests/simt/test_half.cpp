// half and bfloat16 against arithmetic in double, and against the conversions of the attention code, which
// tests/common/test_half.cpp checks: every code, millions of floats.
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <tuple>

#include "common/attention/half.hpp"
#include "common/simt/bfloat16.hpp"
#include "common/simt/half.hpp"

namespace {

enum class Rounding { to_zero, down, up };

/// The code to which a float is rounded: a search among the finite non-negative codes for the two that enclose it.
template <class Widen>
std::uint16_t rounded(float value, Rounding rounding, Widen widen, std::uint16_t infinity) {
  if (std::isnan(value)) return 0x7fff;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double target = std::fabs(static_cast<double>(value));
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | infinity);
  std::uint32_t low = 0, high = infinity;  // widen(low) <= target < widen(high), the infinity as the next power of two
  const auto at = [&](std::uint32_t code) {
    return code < infinity ? static_cast<double>(widen(static_cast<std::uint16_t>(code)))
                           : 2.0 * std::exp2(std::ilogb(static_cast<double>(widen(infinity - 1))));
  };
  while (high - low > 1) {
    const std::uint32_t middle = (low + high) / 2;
    (at(middle) <= target ? low : high) = middle;
  }
  const bool away = rounding == (sign ? Rounding::down : Rounding::up), takes_low = !away || at(low) == target;
  return static_cast<std::uint16_t>(sign | (takes_low ? low : high));
}

/// Difficult floats: random bits, and all numbers near each code and each midpoint.
template <class Check>
void for_floats(Check check) {
  std::mt19937 random(7);
  for (int i = 0; i < 300'000; ++i) check(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x2000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      check(std::bit_cast<float>(high << 16 | low));
    }
  }
}

}  // namespace

TEST_CASE("floats round toward zero, down and up to half and bfloat16") {
  for_floats([](float f) {
    for (const auto& [name, rounding, half_code, bfloat16_code] :
         {std::tuple{"rz", Rounding::to_zero, __float2half_rz(f).simt_code(), __float2bfloat16_rz(f).simt_code()},
          {"rd", Rounding::down, __float2half_rd(f).simt_code(), __float2bfloat16_rd(f).simt_code()},
          {"ru", Rounding::up, __float2half_ru(f).simt_code(), __float2bfloat16_ru(f).simt_code()}}) {
      if (half_code != rounded(f, rounding, simt::half_to_float, 0x7c00)) FAIL("half of " << f << ", " << name);
      if (bfloat16_code != rounded(f, rounding, simt::bfloat16_to_float, 0x7f80))
        FAIL("bfloat16 of " << f << ", " << name);
    }
  });
  SUCCEED("all of them agree");
}

TEST_CASE("the simulator and the oracle convert alike: all codes, all halfway points, random floats") {
  // There are two sets of functions because the simulator is independent of the attention code. Only the code of a NaN
  // differs.
  const auto agree = [](float f) {
    if (std::isnan(f)) {
      if (simt::float_to_half(f) != 0x7fff || simt::float_to_bfloat16(f) != 0x7fff) FAIL("the code of a NaN");
      return;
    }
    if (simt::float_to_half(f) != workbook::float_to_half(f)) FAIL("half of " << f);
    if (simt::float_to_bfloat16(f) != workbook::float_to_bfloat16(f)) FAIL("bfloat16 of " << f);
  };
  const auto same = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const auto code = static_cast<std::uint16_t>(i);
    if (!same(simt::half_to_float(code), workbook::half_to_float(code))) FAIL("half " << code);
    if (!same(simt::bfloat16_to_float(code), workbook::bfloat16_to_float(code))) FAIL("bfloat16 " << code);
    for (const float f : {workbook::half_to_float(code), workbook::bfloat16_to_float(code)}) {
      // The midpoint to the next code is half a step further: in the bits of a float, 2^12 for half and 2^15 for
      // bfloat16.
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
      for (const std::uint32_t step : {0u, 1u << 12, 1u << 15}) {
        for (const std::uint32_t near : {bits + step - 1, bits + step, bits + step + 1})
          agree(std::bit_cast<float>(near));
      }
    }
  }
  std::mt19937 random(12);
  for (int i = 0; i < 1'000'000; ++i) agree(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  SUCCEED("all of them agree");
}

TEST_CASE("half arithmetic has one rounding") {
  std::mt19937 random(3);
  const auto code = [&] { return static_cast<std::uint16_t>(random()); };
  const auto same = [](__half got, double exact) {
    // The exact result as a float rounded to odd: rounding that to half is right.
    const std::uint16_t wanted = std::isnan(exact) ? 0x7fff : simt::float_to_half(simt::round_to_odd(exact));
    return got.simt_code() == wanted || (std::isnan(exact) && __hisnan(got));
  };
  for (int i = 0; i < 500'000; ++i) {
    const __half a = __half::simt_code(code()), b = __half::simt_code(code());
    const double x = a.simt_widen(), y = b.simt_widen();
    if (!same(a + b, x + y)) FAIL(x << " + " << y);
    if (!same(a - b, x - y)) FAIL(x << " - " << y);
    if (!same(a * b, x * y)) FAIL(x << " * " << y);
    if (y != 0 && !same(a / b, x / y)) FAIL(x << " / " << y);
  }
  SUCCEED("all of them agree");
}

TEST_CASE("fused multiply-add has one rounding") {
  std::mt19937 random(5);
  for (int i = 0; i < 500'000; ++i) {
    const __half a = __half::simt_code(static_cast<std::uint16_t>(random()));
    const __half b = __half::simt_code(static_cast<std::uint16_t>(random()));
    // Often close to the negative of a·b, where a second rounding would be visible.
    __half c = __half::simt_code(static_cast<std::uint16_t>(random()));
    if (i % 2 == 0) {
      c = __hneg(a * b);
      c = __half::simt_code(static_cast<std::uint16_t>(c.simt_code() ^ (random() & 3)));
    }
    const __half got = __hfma(a, b, c);
    const long double exact =
        static_cast<long double>(a.simt_widen()) * b.simt_widen() + c.simt_widen();  // 64 bits: exact
    if (std::isnan(exact)) {
      if (!__hisnan(got)) FAIL("not a NaN");
      continue;
    }
    // Nearest, by comparison with the adjacent codes.
    if (std::isinf(static_cast<float>(exact)) || __hisinf(got)) continue;
    const long double error = std::fabs(exact - got.simt_widen());
    for (const int step : {-1, 1}) {
      const __half next = __half::simt_code(static_cast<std::uint16_t>(got.simt_code() + step));
      if (__hisnan(next) || __hisinf(next) || (next.simt_widen() < 0) != (got.simt_widen() < 0)) continue;
      const long double other = std::fabs(exact - next.simt_widen());
      if (other < error || (other == error && got.simt_code() % 2 == 1)) {
        FAIL(a.simt_widen() << " * " << b.simt_widen() << " + " << c.simt_widen());
      }
    }
  }
  SUCCEED("all of them agree");
}

TEST_CASE("maximum and minimum return the number rather than NaN, and order -0 below +0") {
  const __half nan = __half::simt_code(0x7e00), one = __float2half(1.f), zero = __float2half(0.f),
               minus_zero = __hneg(zero);
  CHECK(__hmax(nan, one).simt_code() == one.simt_code());
  CHECK(__hmin(one, nan).simt_code() == one.simt_code());
  CHECK(__hmax(nan, nan).simt_code() == 0x7fff);
  CHECK(__hmax(minus_zero, zero).simt_code() == zero.simt_code());
  CHECK(__hmin(zero, minus_zero).simt_code() == minus_zero.simt_code());
}
