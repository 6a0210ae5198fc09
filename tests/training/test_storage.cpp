// Rounding to storage formats: the same numbers as the conversions of common/attention/half.hpp.
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "common/attention/half.hpp"
#include "common/attention/random.hpp"
#include "common/training/storage.hpp"

using namespace workbook;
using namespace workbook::training;

namespace {

float there_and_back(Storage storage, float value) {
  return storage == Storage::fp16 ? half_to_float(float_to_half(value)) : bfloat16_to_float(float_to_bfloat16(value));
}

bool same(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

}  // namespace

TEST_CASE("stored numbers match the formats: all codes, the halfway points, their adjacent floats, random floats") {
  Random random(5);
  for (const Storage storage : {Storage::fp16, Storage::bf16}) {
    std::vector<float> values{65504.0f, 65519.996f, 65520.0f, 1e30f, -1e30f, 0x1p-25f, 0x1.8p-25f, 0x1p-126f, 1e-45f};
    for (std::uint32_t code = 0; code < 0x7fff; ++code) {
      const auto number = [&](std::uint32_t c) {
        return storage == Storage::fp16 ? half_to_float(std::uint16_t(c)) : bfloat16_to_float(std::uint16_t(c));
      };
      const float half = float((double(number(code)) + double(number(code + 1))) / 2);
      for (const float value : {number(code), half, std::nextafter(half, 0.0f), std::nextafter(half, INFINITY)}) {
        values.push_back(value);
        values.push_back(-value);
      }
    }
    for (int i = 0; i < 1000000; ++i) values.push_back(std::bit_cast<float>(std::uint32_t(random.bits())));
    std::vector<float> stored = values;
    round_to(storage, stored);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!same(stored[i], there_and_back(storage, values[i])))
        FAIL(values[i] << " is stored as " << stored[i] << ", not " << there_and_back(storage, values[i]));
    }
    CHECK(rounded(storage, 1.0001f) == 1.0f);
  }
}

TEST_CASE("fp32 is stored as it is, and a model in double stores nothing else") {
  std::vector<float> values{1.0001f, 1e-40f};
  round_to(Storage::fp32, values);
  CHECK(values == std::vector<float>{1.0001f, 1e-40f});
  std::vector<double> doubles{1};
  CHECK_NOTHROW(round_to(Storage::fp32, doubles));
  CHECK_THROWS_AS(round_to(Storage::fp16, doubles), std::logic_error);
}
