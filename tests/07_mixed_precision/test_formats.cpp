// Chapter 7, formats: all codes of every format, and every halfway point between two of them.
#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/random.hpp"
#include "tests/support/context.hpp"
#include "tests/support/subject.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// A format as the tests know it, in double.
struct Format {
  std::string name;
  int exponent_bits, mantissa_bits;
  bool has_infinity = true;

  std::uint32_t sign() const { return 1u << (exponent_bits + mantissa_bits); }
  std::uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }
  std::uint32_t largest() const { return has_infinity ? infinity() - 1 : sign() - 2; }
  bool is_nan(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign() - 1);
    return has_infinity ? magnitude > infinity() : magnitude == sign() - 1;
  }
  /// Of a code without its sign; beyond the largest too, as if the format went on.
  double value(std::uint32_t magnitude) const {
    const int bias = (1 << (exponent_bits - 1)) - 1, exponent = int(magnitude >> mantissa_bits);
    const double mantissa = double(magnitude & ((1u << mantissa_bits) - 1)), one = double(1u << mantissa_bits);
    return exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                         : std::ldexp(one + mantissa, exponent - bias - mantissa_bits);
  }
};

const Format fp16{"fp16", 5, 10}, bf16{"bf16", 8, 7}, tf32{"TF32", 8, 10}, e4m3{"FP8 E4M3", 4, 3, false},
    e5m2{"FP8 E5M2", 5, 2};
const std::vector<Format> formats{fp16, bf16, tf32, e4m3, e5m2};

enum class Ties { even, away };
enum class Overflow { infinity, saturate };

std::vector<std::uint32_t> encoded(const Format& format, const std::vector<float>& x, Ties ties = Ties::even,
                                   Overflow overflow = Overflow::infinity) {
  worker::Call request("encode");
  request.number("exponent_bits", format.exponent_bits).number("mantissa_bits", format.mantissa_bits);
  request.number("has_infinity", format.has_infinity).number("ties_to_away", ties == Ties::away);
  request.number("saturate", overflow == Overflow::saturate);
  request.input("x", x).output<std::int32_t>("codes", x.size());
  const std::vector<std::int32_t> codes = call(request).output<std::int32_t>("codes");
  return {codes.begin(), codes.end()};
}

/// A float, the code at or below it, and the one that is right.
struct Point {
  float x;
  std::uint32_t below;  ///< code of the largest number of the format not above |x|, without the sign
  std::uint32_t expected;
};

/// Which of the two neighbours, with ties by `up_at_half`.
std::uint32_t neighbour(const Format& format, const Point& point, bool up_at_half) {
  const double half = (format.value(point.below) + format.value(point.below + 1)) / 2, x = std::abs(double(point.x));
  const std::uint32_t magnitude = x > half || (x == half && up_at_half) ? point.below + 1 : point.below;
  return std::signbit(point.x) ? format.sign() | magnitude : magnitude;
}

std::uint32_t overflow_code(const Format& format) {
  return format.has_infinity ? format.infinity() : format.sign() - 1;
}

/// Encodes all points of a format; says which are wrong.
void expect_codes(const Format& format, const std::vector<Point>& points, Ties ties = Ties::even,
                  Overflow overflow = Overflow::infinity) {
  std::vector<float> x;
  for (const Point& point : points) x.push_back(point.x);
  const std::vector<std::uint32_t> got = encoded(format, x, ties, overflow);
  const auto right = [&](std::size_t i) {
    return got[i] == points[i].expected || (std::isnan(points[i].x) && format.is_nan(got[i]) &&
                                            (got[i] & format.sign()) == (points[i].expected & format.sign()));
  };
  std::size_t wrong = 0, first = points.size();
  for (std::size_t i = points.size(); i-- > 0;) {
    if (right(i)) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0) return expect(true, "");
  expect(false,
         fmt::format(
             "{} of {} numbers have the wrong code in {}; the code of the first, {} ({:a}), is {:#x}, expected {:#x}",
             wrong, points.size(), format.name, x[first], x[first], got[first], points[first].expected));
}

Point with_sign(const Format& format, Point point) {
  point.x = -point.x;
  point.expected |= format.sign();
  return point;
}

/// Both signs of the halfway point above every finite code, and of the floats next to it; the last halfway point, from
/// which on numbers are too large, is left to others.
std::vector<Point> halfway_points(const Format& format, Ties ties) {
  std::vector<Point> points;
  for (std::uint32_t code = 0; code < format.largest(); ++code) {
    const float half = float((format.value(code) + format.value(code + 1)) / 2);  // exact: one bit more
    const std::uint32_t up = code + 1, at_half = ties == Ties::away ? up : code % 2 == 0 ? code : up;
    for (const Point point : {Point{half, code, at_half},
                              {std::nextafter(half, 0.0f), code, code},
                              {std::nextafter(half, std::numeric_limits<float>::infinity()), code, up}}) {
      points.push_back(point);
      points.push_back(with_sign(format, point));
    }
  }
  return points;
}

/// Numbers that are too large, and those that just are not. Ties: the largest code is even in E4M3, odd elsewhere.
std::vector<Point> large_numbers(const Format& format, Ties ties, std::uint32_t too_large) {
  const std::uint32_t largest = format.largest();
  const double limit = (format.value(largest) + format.value(largest + 1)) / 2;
  const bool limit_fits = ties == Ties::even && largest % 2 == 0;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::vector<Point> points{{float(format.value(largest)), largest, largest},
                            {std::nextafter(float(limit), 0.0f), largest, largest},
                            {float(limit), largest, limit_fits ? largest : too_large},
                            {infinity, largest, too_large}};
  const float above = std::nextafter(float(limit), infinity);
  for (const float x : {above, 2 * above, std::numeric_limits<float>::max()})
    if (double(x) > limit && std::isfinite(x)) points.push_back({x, largest, too_large});
  for (std::size_t i = 0, n = points.size(); i < n; ++i) points.push_back(with_sign(format, points[i]));
  return points;
}

}  // namespace

TEST_CASE("decode returns the value of every code", "[7.1]") {
  for (const Format& format : formats) {
    std::vector<std::int32_t> codes;
    for (std::uint32_t code = 0; code < 2 * format.sign(); ++code) codes.push_back(std::int32_t(code));
    worker::Call request("decode");
    request.number("exponent_bits", format.exponent_bits).number("mantissa_bits", format.mantissa_bits);
    request.number("has_infinity", format.has_infinity).input("codes", codes).output<float>("x", codes.size());
    const std::vector<float> x = call(request).output<float>("x");
    for (std::uint32_t code = 0; code < 2 * format.sign(); ++code) {
      const std::uint32_t magnitude = code & (format.sign() - 1);
      const float got = x[code];
      const auto fail = [&](const std::string& expected) {
        expect(false, fmt::format("{}: the value of code {:#x} is {}, expected {}", format.name, code, got, expected));
      };
      if (format.is_nan(code)) {
        if (!std::isnan(got)) fail("NaN");
        continue;
      }
      const double value = format.has_infinity && magnitude == format.infinity()
                               ? std::numeric_limits<double>::infinity()
                               : format.value(magnitude);
      const float expected = float(code & format.sign() ? -value : value);
      if (std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(expected))
        fail(fmt::format("{}", expected));
    }
    expect(true, "");
  }
}

TEST_CASE("representable numbers are encoded exactly", "[7.1]") {
  for (const Format& format : formats) {
    std::vector<Point> points;
    for (std::uint32_t code = 0; code <= format.largest(); ++code) {
      const Point point{float(format.value(code)), code, code};
      points.push_back(point);
      points.push_back(with_sign(format, point));
    }
    expect_codes(format, points);
  }
}

TEST_CASE("round to nearest, ties to even", "[7.1]") {
  for (const Format& format : formats) expect_codes(format, halfway_points(format, Ties::even));
}

TEST_CASE("round to nearest, ties away from zero, as in CUDA's conversion to TF32", "[7.1]") {
  for (const Format& format : formats) expect_codes(format, halfway_points(format, Ties::away), Ties::away);
}

TEST_CASE("numbers below half of the smallest become zero with their sign", "[7.1]") {
  for (const Format& format : formats) {
    std::vector<Point> points;
    const float half = float(format.value(1) / 2);
    for (const float x : {0.0f, std::nextafter(half, 0.0f), half / 2, std::numeric_limits<float>::denorm_min(),
                          std::numeric_limits<float>::min() / 4}) {
      if (double(x) > format.value(1) / 2) continue;  // the smallest float is a number of TF32's size
      points.push_back({x, 0, 0});
      points.push_back(with_sign(format, points.back()));
    }
    expect_codes(format, points);
  }
}

TEST_CASE("overflow gives infinity, or NaN in a format without infinity", "[7.1]") {
  for (const Format& format : formats) {
    expect_codes(format, large_numbers(format, Ties::even, overflow_code(format)));
    expect_codes(format, large_numbers(format, Ties::away, overflow_code(format)), Ties::away);
  }
}

TEST_CASE("saturating overflow gives the largest finite number, for infinity too", "[7.1]") {
  for (const Format& format : formats)
    expect_codes(format, large_numbers(format, Ties::even, format.largest()), Ties::even, Overflow::saturate);
}

TEST_CASE("NaN stays NaN, in both modes", "[7.1]") {
  for (const Format& format : formats)
    for (const Overflow overflow : {Overflow::infinity, Overflow::saturate}) {
      std::vector<Point> points;
      for (const std::uint32_t payload : {0x7fc00000u, 0x7f800001u, 0x7fffffffu}) {
        const Point point{std::bit_cast<float>(payload), format.largest(), format.sign() - 1};
        points.push_back(point);
        points.push_back(with_sign(format, point));
      }
      expect_codes(format, points, Ties::even, overflow);
    }
}

TEST_CASE("encode followed by decode gives the nearest number", "[7.1]") {
  // Random floats of all sizes through both functions, against a search of the two neighbours.
  Random random(11);
  std::vector<float> x;
  for (int i = 0; i < 20000; ++i) x.push_back(std::bit_cast<float>(std::uint32_t(random.bits())));
  for (const Format& format : formats) {
    std::vector<Point> points;
    for (const float value : x) {
      if (std::isnan(value)) continue;
      const double magnitude = std::abs(double(value));
      std::uint32_t low = 0, high = format.largest() + 1;  // bisection: value(low) <= magnitude < value(high)
      if (magnitude >= format.value(high)) continue;       // too large: another test's
      while (high - low > 1) {
        const std::uint32_t middle = (low + high) / 2;
        (format.value(middle) <= magnitude ? low : high) = middle;
      }
      if (low == format.largest()) continue;
      Point point{value, low, 0};
      point.expected = neighbour(format, point, low % 2 != 0);
      points.push_back(point);
    }
    expect_codes(format, points);
  }
}

TEST_CASE("the table of ranges", "[whole]") {
  constexpr std::size_t columns = 7;
  worker::Call request("ranges");
  request.output<double>("numbers", 5 * columns);
  const std::vector<double> numbers = call(request).output<double>("numbers");
  const double expected[5][columns] = {
      {16, 5, 10, 65504, 0x1p-14, 0x1p-24, 0x1p-10},
      {16, 8, 7, 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7},
      {19, 8, 10, 0x1.ffcp127, 0x1p-126, 0x1p-136, 0x1p-10},
      {8, 4, 3, 448, 0x1p-6, 0x1p-9, 0x1p-3},
      {8, 5, 2, 57344, 0x1p-14, 0x1p-16, 0x1p-2},
  };
  for (std::size_t f = 0; f < formats.size(); ++f)
    for (std::size_t i = 0; i < columns; ++i)
      expect(numbers[columns * f + i] == expected[f][i],
             fmt::format("{}: number {} of its range is {}, expected {}", formats[f].name, i, numbers[columns * f + i],
                         expected[f][i]));
}

TEST_CASE("encode agrees with the conversions of the backend", "[whole]") {
  // On a GPU CUDA's own, for every format; on the simulator its conversions of fp16 and bf16.
  const std::size_t there = context().backend == Backend::cuda ? 7 : 2;
  struct Toolkit {
    Format format;
    Ties ties;
    Overflow overflow;
  };
  const std::vector<Toolkit> all{{fp16, Ties::even, Overflow::infinity}, {bf16, Ties::even, Overflow::infinity},
                                 {tf32, Ties::away, Overflow::infinity}, {e4m3, Ties::even, Overflow::saturate},
                                 {e5m2, Ties::even, Overflow::saturate}, {e4m3, Ties::even, Overflow::infinity},
                                 {e5m2, Ties::even, Overflow::infinity}};
  Random random(12);
  for (std::size_t i = 0; i < there; ++i) {
    const auto& [format, ties, overflow] = all[i];
    std::vector<float> x{NAN, -NAN};
    for (const auto& points :
         {halfway_points(format, ties), large_numbers(format, ties, overflow == Overflow::saturate ? 0 : 1)})
      for (const Point& point : points) x.push_back(point.x);
    for (int n = 0; n < 100000; ++n) x.push_back(std::bit_cast<float>(std::uint32_t(random.bits())));
    worker::Call request("toolkit");
    request.number("format", double(i)).input("x", x).output<std::int32_t>("codes", x.size());
    const std::vector<std::int32_t> toolkit = call(request).output<std::int32_t>("codes");
    const std::vector<std::uint32_t> ours = encoded(format, x, ties, overflow);
    for (std::size_t n = 0; n < x.size(); ++n) {
      if (std::isnan(x[n])) {  // the kernel's NaN may have another payload and no sign
        expect(format.is_nan(ours[n]) && format.is_nan(std::uint32_t(toolkit[n])),
               fmt::format("{}: the code of NaN is {:#x}, the kernel's is {:#x}", format.name, ours[n], toolkit[n]));
      } else {
        expect(ours[n] == std::uint32_t(toolkit[n]),
               fmt::format("{}: the code of {} ({:a}) is {:#x}, the kernel's is {:#x}", format.name, x[n], x[n],
                           ours[n], toolkit[n]));
      }
    }
  }
}
