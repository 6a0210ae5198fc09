#include "common/judge/compare.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "common/attention/element.hpp"

using namespace workbook;
using namespace workbook::judge;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A comparison that starts out right everywhere.
struct Fixture {
  explicit Fixture(std::array<std::int64_t, 4> sizes, double value = 0.41273, double bound = 6.1e-4)
      : expected(sizes, value), got(sizes, float(value)) {
    bounds = {Tensor<double>(sizes, bound), bound, "fp16 rounding of P and O, N=200"};
    layout = {.tensor = "O", .Br = 64, .Bc = 32, .rows_per_warp = 16};
  }
  Comparison compare() const { return judge::compare(got, expected, bounds, layout); }
  /// Puts `value` into rows [first, last] of one head.
  void put(std::int64_t h, std::int64_t first, std::int64_t last, float value) {
    for (std::int64_t i = first; i <= last; ++i)
      for (std::int64_t c = 0; c < got.sizes[3]; ++c) got(0, h, i, c) = value;
  }

  Tensor<double> expected;
  Tensor<float> got;
  Bounds bounds;
  Layout layout;
};

}  // namespace

TEST_CASE("a close output gives no text") {
  Fixture fixture({1, 2, 100, 8});
  fixture.got(0, 1, 7, 3) += 3e-4F;
  const Comparison result = fixture.compare();
  CHECK(result.close);
  CHECK(result.off == 0);
  CHECK(result.elements == 1600);
  CHECK(result.text.empty());
  CHECK_THAT(result.max_error, WithinRel(3e-4, 1e-3));
  CHECK(result.bound == 6.1e-4);
  CHECK(result.rms_error < 1e-4);
}

TEST_CASE("the message gives the location, the error and the allowed difference") {
  Fixture fixture({1, 1, 200, 64});
  for (std::int64_t i = 64; i < 88; ++i)
    for (std::int64_t c = 0; c < 64; ++c) fixture.got(0, 0, i, c) = 0.411F;
  fixture.got(0, 0, 64, 3) = 0.40961F;
  const Comparison result = fixture.compare();
  CHECK_FALSE(result.close);
  CHECK(result.off == 1536);
  CHECK(result.text ==
        R"(  1536 of 12800 elements of O are off; worst at (batch 0, head 0, row 64, column 3), Q tile 1, warp 0
    expected  0.41273, got  0.40961, allowed difference 0.00061 (fp16 rounding of P and O, N=200)
    all of them in rows 64 to 87 (Q tile 1)
  first five:
    (0, 0, 64, 0)      expected  0.41273, got  0.411
    (0, 0, 64, 1)      expected  0.41273, got  0.411
    (0, 0, 64, 2)      expected  0.41273, got  0.411
    (0, 0, 64, 3)      expected  0.41273, got  0.40961
    (0, 0, 64, 4)      expected  0.41273, got  0.411)");
}

TEST_CASE("numbers are printed with enough digits to see the difference") {
  Fixture fixture({1, 1, 4, 4}, 1.0, 1e-7);
  fixture.got(0, 0, 2, 1) = 1.0000005F;
  CHECK_THAT(fixture.compare().text, ContainsSubstring("expected  1, got  1.00000048"));
  CHECK_THAT(fixture.compare().text,
             ContainsSubstring("1 of 16 elements of O is off; worst at (batch 0, head 0, row 2"));
}

TEST_CASE("a pattern is described in one line") {
  Fixture fixture({2, 4, 200, 32});
  SECTION("every element") {
    for (float& x : fixture.got.values) x = 1;
    CHECK_THAT(fixture.compare().text, ContainsSubstring("\n    every element\n"));
  }
  SECTION("all zeros") {
    for (float& x : fixture.got.values) x = 0;
    CHECK_THAT(fixture.compare().text, ContainsSubstring("\n    every element\n    all got 0\n"));
  }
  SECTION("a head") {
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t i = 0; i < 200; ++i)
        for (std::int64_t c = 0; c < 32; ++c) fixture.got(b, 1, i, c) = 1;
    CHECK_THAT(fixture.compare().text, ContainsSubstring("\n    only head 1\n"));
  }
  SECTION("the last tile") {
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < 4; ++h)
        for (std::int64_t i = 192; i < 200; ++i) fixture.got(b, h, i, 5) = fixture.got(b, h, i, 6) = 1;
    CHECK_THAT(fixture.compare().text,
               ContainsSubstring("\n    all of them in rows 192 to 199 (the last Q tile), columns 5 to 6\n"));
  }
  SECTION("from a row on") {
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < 4; ++h)
        for (std::int64_t i = 64; i < 200; ++i)
          for (std::int64_t c = 0; c < 32; ++c) fixture.got(b, h, i, c) = 1;
    CHECK_THAT(fixture.compare().text, ContainsSubstring("\n    every row from 64 on (Q tile 1 on)\n"));
  }
  SECTION("a batch, a head and rows") {
    fixture.put(3, 10, 20, 1);
    CHECK_THAT(fixture.compare().text,
               ContainsSubstring("\n    all of them in batch 0, head 3, rows 10 to 20 (Q tile 0)\n"));
  }
  SECTION("a repeating pattern") {
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < 4; ++h)
        for (std::int64_t i = 0; i < 200; ++i)
          for (std::int64_t c = 0; c < 32; ++c)
            if (c % 8 >= 4) fixture.got(b, h, i, c) = 1;
    CHECK_THAT(fixture.compare().text, ContainsSubstring("\n    all of them in columns 4 to 7 of every 8\n"));
  }
}

TEST_CASE("NaN and infinities") {
  Fixture fixture({1, 1, 40, 4});
  SECTION("the NaN that outputs start with was not written") {
    fixture.put(0, 32, 39, unwritten_value);
    const Comparison result = fixture.compare();
    CHECK(result.off == 32);
    CHECK(result.max_error == infinity);
    CHECK(result.rms_error < 1e-6);
    CHECK(result.findings.at(0).unwritten == 32);
    CHECK(result.findings.at(0).nan == 0);
    CHECK_THAT(
        result.text,
        ContainsSubstring("all still hold the NaN that outputs are initialised with: your code never writes them"));
    CHECK_THAT(result.text, ContainsSubstring("expected  0.41273, got  NaN"));
  }
  SECTION("some NaN") {
    fixture.put(0, 3, 3, NAN);
    fixture.put(0, 4, 4, 7);
    const Comparison result = fixture.compare();
    CHECK(result.findings.at(0).nan == 4);
    CHECK(result.findings.at(0).unwritten == 0);
    CHECK_THAT(result.text, ContainsSubstring("4 of them got NaN from a computation"));
  }
  SECTION("an infinity that is expected must be given") {
    fixture.expected(0, 0, 5, 1) = -infinity;
    fixture.bounds.element(0, 0, 5, 1) = 0;
    CHECK(fixture.compare().off == 1);
    fixture.got(0, 0, 5, 1) = infinity;
    CHECK(fixture.compare().off == 1);
    fixture.got(0, 0, 5, 1) = -infinity;
    CHECK(fixture.compare().close);
  }
  SECTION("an infinity that is not expected") {
    fixture.got(0, 0, 5, 1) = fixture.got(0, 0, 7, 1) = -infinity;
    CHECK_THAT(fixture.compare().text, ContainsSubstring("all got an infinity"));
  }
  SECTION("where the bound is 0, the element must be equal") {
    fixture.expected(0, 0, 0, 0) = 0;
    fixture.bounds.element(0, 0, 0, 0) = 0;
    fixture.got(0, 0, 0, 0) = 1e-30F;
    CHECK(fixture.compare().off == 1);
  }
}

TEST_CASE("elements that are within their bounds and wrong together") {
  Fixture fixture({1, 1, 100, 16});
  fixture.bounds.rms = 1e-4;
  for (float& x : fixture.got.values) x += 3e-4F;
  const Comparison result = fixture.compare();
  CHECK_FALSE(result.close);
  CHECK(result.off == 0);
  CHECK_THAT(result.text, ContainsSubstring("every element of O is within its own bound, but the rms error is too "
                                            "large: 0.0003, allowed 0.0001 (fp16 rounding of P and O, N=200)"));
  CHECK_THAT(result.text, ContainsSubstring("round a step too coarsely or too early"));
}

TEST_CASE("a reference or a bound that is not finite fails, also if the output equals the reference") {
  Fixture fixture({1, 1, 40, 4});
  const auto refused = [&](const char* said) {
    const Comparison result = compare_finite(fixture.got, fixture.expected, fixture.bounds, fixture.layout);
    CHECK_FALSE(result.close);
    CHECK_THAT(result.text, ContainsSubstring(said));
  };
  CHECK(compare_finite(fixture.got, fixture.expected, fixture.bounds, fixture.layout).close);
  SECTION("a NaN") {
    fixture.expected(0, 0, 5, 1) = std::numeric_limits<double>::quiet_NaN();
    fixture.got(0, 0, 5, 1) = std::numeric_limits<float>::quiet_NaN();
    refused("the reference of O at (batch 0, head 0, row 5, column 1) is nan");
  }
  SECTION("an infinity") {
    fixture.expected(0, 0, 5, 1) = infinity;
    fixture.got(0, 0, 5, 1) = infinity;
    refused("column 1) is inf");
  }
  SECTION("an infinite bound") {
    fixture.bounds.element(0, 0, 5, 1) = infinity;
    refused("and its bound is inf");
  }
  SECTION("a bound of NaN") {
    fixture.bounds.element(0, 0, 5, 1) = std::numeric_limits<double>::quiet_NaN();
    refused("and its bound is nan");
  }
  SECTION("an rms bound that is not finite") {
    fixture.bounds.rms = infinity;
    refused("the bound of the rms error of O is inf");
  }
  SECTION("the LSE of a fully masked row is -inf") {
    fixture.expected(0, 0, 5, 1) = -infinity;
    fixture.got(0, 0, 5, 1) = -std::numeric_limits<float>::infinity();
    CHECK(compare_finite(fixture.got, fixture.expected, fixture.bounds, fixture.layout).close);
  }
}

TEST_CASE("unwritten codes are distinguished from computed NaN, in every format") {
  for (const Element element : {float16, bfloat16}) {
    const std::vector<std::uint16_t> codes{0xffff, 0xfe00, 0x7fff, 0xfff5};
    const std::vector<float> floats = from_codes(codes, element);
    CHECK(is_unwritten(floats[0]));
    for (std::size_t i = 1; i < floats.size(); ++i) CHECK_FALSE(is_unwritten(floats[i]));
  }
  CHECK(is_unwritten(unwritten_value));
  CHECK_FALSE(is_unwritten(NAN));
  CHECK_FALSE(is_unwritten(-NAN));
  CHECK_FALSE(is_unwritten(1));
}

TEST_CASE("a comparison holds the locations of its errors as data") {
  Fixture fixture({1, 2, 100, 64});
  fixture.layout.rows_per_warp = 32;
  SECTION("nowhere") {
    const TensorFinding finding = fixture.compare().findings.at(0);
    CHECK(finding.right);
    CHECK(finding.where.empty());
  }
  SECTION("columns from 32 on, rows 16 to 31 of each warp") {
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < 100; ++i)
        for (std::int64_t c = 32; c < 64; ++c)
          if (i % 32 >= 16) fixture.got(0, h, i, c) = 1;
    const Comparison result = fixture.compare();
    const TensorFinding& finding = result.findings.at(0);
    CHECK_FALSE(finding.right);
    CHECK(finding.off == result.off);
    REQUIRE(finding.along("row") != nullptr);
    CHECK(finding.along("row")->period == 32);
    CHECK(finding.along("row")->low == 16);
    CHECK(finding.along("row")->high == 31);
    CHECK(finding.along("column")->tail());
    CHECK(finding.along("column")->first == 32);
    CHECK(finding.along("head")->everywhere());
    CHECK(finding.along("batch") == nullptr);
    CHECK_THAT(result.text, ContainsSubstring("rows 16 to 31 of each warp, columns from 32 on"));
  }
  SECTION("parts") {
    fixture.layout.parts = {{"m", 0}, {"l", 1}, {"O", 2}};
    fixture.got(0, 1, 3, 1) = 7;
    const auto findings = fixture.compare().findings;
    REQUIRE(findings.size() == 3);
    CHECK(findings[0].right);
    CHECK_FALSE(findings[1].right);
    CHECK(findings[1].elements == 200);
    CHECK(findings[2].right);
    CHECK(findings[2].elements == 200 * 62);
  }
}

TEST_CASE("values that belong to another index are named with that index") {
  const auto with_numbers = [] {
    Fixture fixture({1, 1, 32, 32}, 0, 1e-4);
    for (std::int64_t i = 0; i < 32; ++i)
      for (std::int64_t c = 0; c < 32; ++c) fixture.expected(0, 0, i, c) = std::sin(double(100 * i + c * c));
    return fixture;
  };
  const auto taken_from = [&](auto place) {
    Fixture fixture = with_numbers();
    for (std::int64_t i = 0; i < 32; ++i)
      for (std::int64_t c = 0; c < 32; ++c) {
        const auto [row, column] = place(i, c);
        fixture.got(0, 0, i, c) = float(fixture.expected(0, 0, row, column));
      }
    return fixture.compare().findings[0].elsewhere;
  };
  using Place = std::pair<std::int64_t, std::int64_t>;
  CHECK(taken_from([](auto i, auto c) { return Place(i, c); }).empty());
  CHECK(taken_from([](auto i, auto c) { return Place(i ^ 16, c); }) ==
        "row 0 holds what belongs in row 16, row 1 what belongs in row 17");
  CHECK(taken_from([](auto i, auto c) { return Place(i, c ^ 8); }) ==
        "columns 0 to 7 hold what belongs in columns 8 to 15, columns 8 to 15 what belongs in columns 0 to 7");
  CHECK(taken_from([](auto i, auto c) { return Place(i, c % 8 >= 4 ? c - 4 : c); }) ==
        "columns 4 to 7 hold what belongs in columns 0 to 3, columns 12 to 15 what belongs in columns 8 to 11");
  // Wrong values have no other position, and a value that occurs at many positions identifies none.
  Fixture fixture = with_numbers();
  for (float& x : fixture.got.values) x = 0.7F;
  CHECK(fixture.compare().findings[0].elsewhere.empty());
  Fixture same({1, 1, 32, 32});
  same.put(0, 3, 5, 0.2F);
  CHECK(same.compare().findings[0].elsewhere.empty());
}

TEST_CASE("a common factor of wrong elements is found per row and per group of columns") {
  const auto times = [](auto factor, double bound = 1e-4) {
    Fixture fixture({1, 1, 8, 32}, 0, bound);
    for (std::int64_t i = 0; i < 8; ++i)
      for (std::int64_t c = 0; c < 32; ++c) {
        fixture.expected(0, 0, i, c) = std::sin(double(100 * i + c * c));
        fixture.got(0, 0, i, c) = float(fixture.expected(0, 0, i, c) * factor(i, c));
      }
    return fixture.compare().findings[0].scaled_together;
  };
  CHECK(times([](auto i, auto) { return 1.5 + 0.1 * double(i); }) == "row");
  CHECK(times([](auto, auto c) { return c < 16 ? 1 : 1.5; }) == "columns 0 to 15");
  CHECK(times([](auto i, auto c) { return 1.5 + double(i + c % 8 / 4); }) == "columns 0 to 3 of every 8");
  CHECK(times([](auto, auto c) { return 1.5 + double(c % 8 / 2); }) == "columns 0 to 1 of every 8");
  CHECK(times([](auto, auto c) { return 1.5 + double(c % 2); }).empty());
  // Hardly more than what rounding may do: any factor near 1 is as far from these numbers as what is expected.
  CHECK(times([](auto, auto c) { return c % 2 == 0 ? 1.03 : 0.98; }, 1e-2).empty());
}

TEST_CASE("axes without a name are omitted") {
  Fixture fixture({1, 1, 50, 20});
  fixture.layout = {.tensor = "S", .axes = {"", "", "query", "key"}};
  fixture.got(0, 0, 7, 19) = fixture.got(0, 0, 9, 19) = 5;
  const std::string text = fixture.compare().text;
  CHECK_THAT(text, ContainsSubstring("2 of 1000 elements of S are off; worst at (query 7, key 19)\n"));
  CHECK_THAT(text, ContainsSubstring("all of them in queries 7 to 9, key 19\n"));
  CHECK_THAT(text, ContainsSubstring("\n  all of them:\n    (7, 19)"));
}

TEST_CASE("without Br, rows are divided into K/V tiles") {
  Fixture fixture({1, 1, 100, 4});
  fixture.layout = {.tensor = "dK", .Bc = 32};
  fixture.put(0, 70, 70, 3);
  CHECK_THAT(fixture.compare().text, ContainsSubstring("column 0), K/V tile 2\n"));
  CHECK_THAT(fixture.compare().text, ContainsSubstring("only row 70 (K/V tile 2)"));
}

TEST_CASE("tensors of different sizes are a programming error") {
  Fixture fixture({1, 1, 10, 4});
  fixture.got = Tensor<float>({1, 1, 10, 5});
  CHECK_THROWS_AS(fixture.compare(), std::logic_error);
}
