// Chapter 7, unscaling: one pass over all gradients.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "common/attention/half.hpp"
#include "common/attention/inputs.hpp"
#include "tests/support/subject.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

/// n codes of finite fp16 numbers, subnormal ones among them, neighbours different.
std::vector<std::uint16_t> numbered_codes(std::size_t n) {
  std::vector<std::uint16_t> codes(n);
  for (std::size_t i = 0; i < n; ++i)
    codes[i] = std::uint16_t((i * 7 + i / 29999) % 0x7c00 | (i % 3 == 0 ? 0x8000 : 0));
  return codes;
}

worker::Reply unscale(const std::vector<std::uint16_t>& scaled, float scale, int flag = 0) {
  worker::Call request("unscale");
  request.number("scale", scale).number("flag", flag).input("scaled", scaled);
  request.output<float>("unscaled", scaled.size()).output<std::int32_t>("found", 1);
  return call(request);
}

bool same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

void expect_unscaled(const std::vector<std::uint16_t>& scaled, float scale) {
  const worker::Reply reply = unscale(scaled, scale);
  const std::vector<float> got = reply.output<float>("unscaled");
  const float inverse = 1 / scale;
  for (std::size_t i = 0; i < scaled.size(); ++i) {
    const float number = half_to_float(scaled[i]), expected = number * inverse;
    if (same(got[i], expected)) continue;
    const bool in_fp16 = same(got[i], half_to_float(float_to_half(expected)));
    expect(false,
           fmt::format("of {} gradients, number {} is {} with the scale {}; unscaled it became {}, not {}",
                       scaled.size(), i, number, scale, got[i], expected),
           std::isnan(got[i])             ? "not every gradient is unscaled"
           : same(got[i], number)         ? "the gradient is not unscaled"
           : same(got[i], number * scale) ? "the gradient is multiplied by the scale, not divided"
           : in_fp16                      ? "the product is rounded to fp16: what the scale had saved is lost again"
                                          : "",
           std::isnan(got[i])             ? "never-written"
           : same(got[i], number)         ? "not-unscaled"
           : same(got[i], number * scale) ? "scale-multiplied"
           : in_fp16                      ? "unscaled-in-fp16"
                                          : "unknown");
  }
  expect(reply.output<std::int32_t>("found")[0] == 0,
         fmt::format("{} finite gradients, and the flag is {}", scaled.size(), reply.output<std::int32_t>("found")[0]),
         "finite gradients are reported", "false-alarm");
}

void expect_found(std::size_t n, std::size_t place, std::uint16_t bad) {
  std::vector<std::uint16_t> scaled = numbered_codes(n);
  scaled[place] = bad;
  const worker::Reply reply = unscale(scaled, 1024);
  const std::int32_t found = reply.output<std::int32_t>("found")[0];
  const bool nan = (bad & 0x7fff) > 0x7c00, tail = place >= n / 4 * 4, first_block = place < 1024;
  expect(found == 1, fmt::format("gradient {} of {} is {}, and the flag is {}", place, n, half_to_float(bad), found),
         nan                ? "NaN is taken for a finite number"
         : tail             ? "the gradients after the last four are not looked at"
         : !first_block     ? "a later block's gradients are not looked at, or its report is overwritten"
         : place % 128 != 0 ? "what lane 0 has not seen itself is lost"
                            : "",
         nan                ? "nan-counts-as-finite"
         : tail             ? "tail-not-checked"
         : !first_block     ? "later-blocks-not-checked"
         : place % 128 != 0 ? "one-lane-checked"
                            : "unknown");
}

}  // namespace

TEST_CASE("every gradient is unscaled, for every length", "[7.5]") {
  for (const std::size_t n : {1, 3, 4, 5, 127, 128, 1023, 1027, 5000}) expect_unscaled(numbered_codes(n), 1024);
}

TEST_CASE("more gradients than threads", "[7.5]") {
  expect_unscaled(numbered_codes(1024 * 256 * 4 + 1030), 65536);
}

TEST_CASE("unscaled gradients may be far below fp16's smallest number", "[7.5]") {
  for (const float scale : {1.0f, 0x1p24f, 0x1p100f, 0x1p-10f, 3.0f}) expect_unscaled(numbered_codes(3000), scale);
}

TEST_CASE("any gradient that is not finite is found", "[7.5]") {
  constexpr std::uint16_t nan = 0x7e00, infinity = 0x7c00, minus_infinity = 0xfc00;
  // Infinities first: a message about them says most. 1024 gradients a block.
  for (const std::uint16_t bad : {infinity, minus_infinity, nan})
    for (const std::size_t place : {0, 37, 1023, 1024, 2500, 4099, 4101}) expect_found(4102, place, bad);
}

TEST_CASE("a product that is not finite is found too", "[7.5]") {
  // 60000 · 2^120 is beyond fp32: finite as it came, infinite for the optimiser.
  std::vector<std::uint16_t> scaled = numbered_codes(1000);
  for (std::uint16_t& code : scaled) code = 0x3c00;  // 1
  scaled[700] = float_to_half(60000);
  expect(unscale(scaled, 0x1p-120f).output<std::int32_t>("found")[0] == 1,
         "a gradient of 60000 with the scale 2^-120 is infinite when unscaled, and the flag is 0",
         "what is looked at is the scaled gradient, not what the optimiser is given", "checked-before-unscaling");
}

TEST_CASE("a flag that is set stays set", "[7.5]") {
  // The gradients of a network come in several arrays, with one flag for all.
  for (const std::size_t n : {1, 5000})
    expect(unscale(numbered_codes(n), 1024, 1).output<std::int32_t>("found")[0] == 1,
           fmt::format("the flag was 1 before {} finite gradients, and is 0 after them", n),
           "the flag is written in good cases too", "flag-overwritten");
}

TEST_CASE("one pass: every sector is read once and written once, and good gradients need no atomic", "[7.5]") {
  require_counters();
  const std::size_t n = 48 * 256;
  const worker::Reply reply = unscale(numbered_codes(n), 1024);
  expect_count(reply, "scaled.load_bytes", double(n) * 2, "every gradient once", "gradients are read more than once",
               "traffic");
  expect_count(reply, "scaled.load_sectors", double(n) * 2 / 32, "every sector of 32 bytes once",
               "neighbouring lanes do not take neighbouring gradients", "uncoalesced");
  expect_count(reply, "unscaled.load_bytes", 0, "nothing is read back", "the result is read again to look at it",
               "traffic");
  expect_count(reply, "unscaled.store_sectors", double(n) * 4 / 32, "every sector of 32 bytes once",
               "neighbouring lanes do not write neighbouring gradients", "uncoalesced");
  expect_count(reply, "unscaled.store_requests", double(n) * 4 / 512, "32 lanes with 16 bytes each a request",
               "a thread writes fewer than 16 bytes at a time", "narrow-access");
  expect_count(reply, "found.atomic_requests", 0, "nothing to report", "the flag is written in good cases too",
               "flag-overwritten");
}

TEST_CASE("a warp reports once, however many of its lanes have something to tell", "[7.5]") {
  require_counters();
  const std::size_t n = 48 * 128;  // 128 gradients a warp
  const worker::Reply reply = unscale(std::vector<std::uint16_t>(n, 0x7c00), 1024);
  expect(reply.output<std::int32_t>("found")[0] == 1, "all gradients are infinite, and the flag is not 1");
  expect_count(reply, "found.atomic_sectors", 48, "one lane of each warp",
               "every lane that found something reports it itself, or none", "atomic-per-lane");
}

TEST_CASE("the kernel unscales as the step does, and finds what the step skips", "[whole]") {
  std::vector<float> gradients = normal_values(3001, 4);
  for (const bool bad : {false, true}) {
    if (bad) gradients[2999] = 1e6f;  // 1024 times as large, it is beyond fp16
    worker::Call request("scaled_step");
    request.number("scale", 1024).input("gradients", gradients);
    request.output<float>("given", gradients.size()).output<double>("facts", 4);
    const worker::Reply step = call(request);
    std::vector<std::uint16_t> scaled;
    for (const float gradient : gradients) scaled.push_back(float_to_half(1024 * gradient));
    const worker::Reply kernel = unscale(scaled, 1024);
    expect((step.output<double>("facts")[0] != 0) == (kernel.output<std::int32_t>("found")[0] == 0),
           fmt::format("the step was {}, and the kernel's flag is {}",
                       step.output<double>("facts")[0] != 0 ? "taken" : "skipped",
                       kernel.output<std::int32_t>("found")[0]));
    if (bad) continue;
    const auto given = step.output<float>("given"), unscaled = kernel.output<float>("unscaled");
    for (std::size_t i = 0; i < given.size(); ++i)
      expect(given[i] == unscaled[i],
             fmt::format("gradient {}: the step gave {}, the kernel {}", i, given[i], unscaled[i]));
  }
}
