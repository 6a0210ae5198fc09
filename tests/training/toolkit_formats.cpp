// Chapter 7's conversions against those of the CUDA toolkit's own headers, which have a version for the host: every
// code, every halfway point between two codes and the floats next to it, and random floats. (TF32's conversion exists
// only on the GPU, where the chapter's own tests compare it.)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/attention/random.hpp"
#include "solutions/07_mixed_precision/formats.hpp"

using namespace workbook;

namespace {

using Encode = std::function<std::uint32_t(float)>;
using Decode = std::function<float(std::uint32_t)>;

float float_of(const __half_raw& raw) {
  return __half2float(__half(raw));
}

/// A format, and the toolkit's conversions from float and to it.
struct Compared {
  const ch07::Format& format;
  ch07::Overflow overflow;
  Encode encode;
  Decode decode;
};

std::vector<Compared> formats() {
  const auto fp8 = [](__nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {
    return [=](float x) { return std::uint32_t(__nv_cvt_float_to_fp8(x, saturation, kind)); };
  };
  const auto from_fp8 = [](__nv_fp8_interpretation_t kind) {
    return [=](std::uint32_t code) { return float_of(__nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t(code), kind)); };
  };
  using ch07::Overflow;
  return {
      {ch07::fp16, Overflow::to_infinity, [](float x) { return std::uint32_t(__half_raw(__float2half(x)).x); },
       [](std::uint32_t code) { return float_of(__half_raw{std::uint16_t(code)}); }},
      {ch07::bf16, Overflow::to_infinity,
       [](float x) { return std::uint32_t(__nv_bfloat16_raw(__float2bfloat16(x)).x); },
       [](std::uint32_t code) { return __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{std::uint16_t(code)})); }},
      {ch07::e4m3, Overflow::to_infinity, fp8(__NV_NOSAT, __NV_E4M3), from_fp8(__NV_E4M3)},
      {ch07::e4m3, Overflow::saturate, fp8(__NV_SATFINITE, __NV_E4M3), from_fp8(__NV_E4M3)},
      {ch07::e5m2, Overflow::to_infinity, fp8(__NV_NOSAT, __NV_E5M2), from_fp8(__NV_E5M2)},
      {ch07::e5m2, Overflow::saturate, fp8(__NV_SATFINITE, __NV_E5M2), from_fp8(__NV_E5M2)},
  };
}

std::string name(const Compared& compared) {
  return std::string(compared.format.name) + (compared.overflow == ch07::Overflow::saturate ? ", saturating" : "");
}

}  // namespace

TEST_CASE("every code decodes to the value that the CUDA toolkit decodes") {
  for (const Compared& compared : formats()) {
    INFO(name(compared));
    std::size_t wrong = 0;
    for (std::uint32_t code = 0; code < 2 * compared.format.sign_bit(); ++code) {
      const float ours = ch07::decode(code, compared.format), theirs = compared.decode(code);
      const bool same = std::isnan(ours) ? std::isnan(theirs)
                                         : std::bit_cast<std::uint32_t>(ours) == std::bit_cast<std::uint32_t>(theirs);
      wrong += !same;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("every float is encoded as the CUDA toolkit encodes it") {
  Random random(21);
  for (const Compared& compared : formats()) {
    INFO(name(compared));
    const ch07::Format& format = compared.format;
    std::vector<float> values{std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max(),
                              std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::min()};
    for (std::uint32_t code = 0; code <= format.largest_code(); ++code) {
      // Past the largest number, where the next would be.
      const double low = ch07::decode(code, format), below = code == 0 ? 0 : ch07::decode(code - 1, format);
      const double high = code == format.largest_code() ? low + (low - below) : ch07::decode(code + 1, format);
      const auto half = float((low + high) / 2);
      for (const float value : {float(low), half, std::nextafter(half, 0.0f), std::nextafter(half, INFINITY)})
        values.push_back(value);
    }
    for (int i = 0; i < 300000; ++i) values.push_back(std::bit_cast<float>(std::uint32_t(random.bits())));

    std::size_t wrong = 0;
    for (const float value : values) {
      for (const float x : {value, -value}) {
        const std::uint32_t ours = ch07::encode(x, format, ch07::Rounding::to_even, compared.overflow);
        const std::uint32_t theirs = compared.encode(x);
        // The NaN's payload and sign are unspecified.
        const bool same = std::isnan(x)
                              ? std::isnan(ch07::decode(theirs, format)) && std::isnan(ch07::decode(ours, format))
                              : ours == theirs;
        if (!same && wrong == 0) UNSCOPED_INFO("the first: " << x << " became " << ours << ", not " << theirs);
        wrong += !same;
      }
    }
    CHECK(wrong == 0);
  }
}
