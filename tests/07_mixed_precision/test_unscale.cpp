// Chapter 7, unscaling: one pass over all gradients.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <span>

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
           fmt::format("of {} gradients, gradient {} is {} with the scale {}; unscaled, it is {}, expected {}",
                       scaled.size(), i, number, scale, got[i], expected),
           std::isnan(got[i])     ? "your code does not write every gradient; it must unscale all n"
           : same(got[i], number) ? "your code does not unscale the gradient; it must multiply it by inverse_scale"
           : same(got[i], number * scale)
               ? "your code multiplies the gradient by the scale; it must multiply it by inverse_scale"
           : in_fp16 ? "your code rounds the product to fp16, where small gradients become 0 again; it must multiply "
                       "and store in fp32"
                     : "",
           std::isnan(got[i])             ? "never-written"
           : same(got[i], number)         ? "not-unscaled"
           : same(got[i], number * scale) ? "scale-multiplied"
           : in_fp16                      ? "unscaled-in-fp16"
                                          : "unknown");
  }
  expect(reply.output<std::int32_t>("found")[0] == 0,
         fmt::format("all {} gradients are finite, but the flag is {}", scaled.size(),
                     reply.output<std::int32_t>("found")[0]),
         "your code sets the flag for finite gradients; it must set it only for infinity and NaN", "false-alarm");
}

/// Sets one of n gradients to `bad`, for each of the indices; returns those that leave the flag at 0.
std::vector<std::size_t> missed_indices(std::size_t n, std::span<const std::size_t> indices, std::uint16_t bad) {
  std::vector<std::size_t> missed;
  for (const std::size_t index : indices) {
    std::vector<std::uint16_t> scaled = numbered_codes(n);
    scaled[index] = bad;
    if (unscale(scaled, 1024).output<std::int32_t>("found")[0] != 1) missed.push_back(index);
  }
  return missed;
}

/// Where in the grid gradient `index` of n is processed: 4 adjacent gradients per thread, 128 per warp, 1024 per block
/// of 256 threads.
struct Position {
  bool tail, also_tail, first_block, first_warp, first_lane;
};
Position position_of(std::size_t index, std::size_t n) {
  const bool tail = index >= n / 4 * 4;
  const std::size_t thread = tail ? index - n / 4 * 4 : index / 4;
  return {tail, thread < n % 4, thread < 256, thread % 256 < 32, thread % 32 == 0};
}

/// Expects every one of the indices to be found. A mistake is named only if it explains every index.
void expect_found(std::size_t n, std::span<const std::size_t> indices, std::uint16_t bad) {
  const std::vector<std::size_t> missed = missed_indices(n, indices, bad);
  const auto are_missed = [&](auto rule) {
    return std::ranges::all_of(indices, [&](std::size_t index) {
      return rule(position_of(index, n)) == (std::ranges::find(missed, index) != missed.end());
    });
  };
  const bool nan = (bad & 0x7fff) > 0x7c00;
  std::string cause, id = "unknown";
  if (nan) {  // infinities have been found at the same indices
    cause = "your code treats NaN as finite; it must detect infinity and NaN", id = "nan-counts-as-finite";
  } else if (are_missed([](const Position&) { return true; })) {
    cause = "your code never sets the flag; it must set it if any result is not finite", id = "never-reported";
  } else if (are_missed([](const Position& s) { return s.tail; })) {
    cause = "your code does not check the n mod 4 gradients of the tail; it must check every result",
    id = "tail-not-checked";
  } else if (are_missed([](const Position& s) { return !s.tail && s.also_tail; })) {
    cause =
        "your code overwrites what a thread has found in its groups of four when it checks the tail; it must combine "
        "both",
    id = "found-forgotten";
  } else if (are_missed([](const Position& s) { return !s.first_block; })) {
    cause =
        "your code does not check the gradients of later thread blocks, or overwrites their result; every block must "
        "set the flag",
    id = "later-blocks-not-checked";
  } else if (are_missed([](const Position& s) { return !s.first_lane; })) {
    cause =
        "your code sets the flag only if lane 0 itself has found a result that is not finite; it must do so if any "
        "lane of the warp has",
    id = "one-lane-checked";
  } else if (are_missed([](const Position& s) { return !s.first_warp; })) {
    cause =
        "your code lets only the first warp of a thread block set the flag; a lane of every warp must be able to set "
        "it",
    id = "one-warp-reports";
  }
  expect(missed.empty(),
         fmt::format("one gradient of {} is {}; the flag stays 0 if it is gradient {}", n, half_to_float(bad),
                     fmt::join(missed, ", ")),
         cause, id);
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

TEST_CASE("every non-finite gradient is found", "[7.5]") {
  constexpr std::uint16_t nan = 0x7e00, infinity = 0x7c00, minus_infinity = 0xfc00;
  // Lane 0 and another lane of the first warp, of the last warp, and of a later block; the last group of four; the
  // tail.
  constexpr std::size_t indices[] = {0, 37, 896, 1023, 1024, 2500, 4099, 4100, 4101};
  // Infinities first: their diagnosis is the most specific.
  for (const std::uint16_t bad : {infinity, minus_infinity, nan}) expect_found(4102, indices, bad);
}

TEST_CASE("a gradient that overflows when unscaled is found", "[7.5]") {
  // 60000 · 2^120 is beyond fp32: finite when scaled, infinite for the optimiser.
  const auto is_found = [](float gradient, float scale) {
    std::vector<std::uint16_t> scaled(1000, 0x3c00);  // 1
    scaled[700] = float_to_half(gradient);
    return unscale(scaled, scale).output<std::int32_t>("found")[0] == 1;
  };
  // If an infinity at this index is missed too, the cause is not that the check comes before unscaling.
  const bool found = is_found(60000, 0x1p-120f), alone = !found && is_found(INFINITY, 1);
  expect(found, "a gradient of 60000 with the scale 2^-120 is infinite when unscaled, but the flag is 0",
         alone ? "your code checks the scaled gradients; it must check the unscaled ones, which can overflow even if "
                 "the scaled ones are finite"
               : "",
         alone ? "checked-before-unscaling" : "unknown");
  expect(!is_found(60000, 0.5f),
         "a gradient of 60000 with the scale 0.5 is 120000 when unscaled, finite in fp32, but the flag is 1",
         "your code sets the flag for a finite result; it must set it only for infinity and NaN", "finite-found");
}

TEST_CASE("a flag that is set stays set", "[7.5]") {
  // The gradients of a network come in several arrays, with one flag for all.
  for (const std::size_t n : {1, 5000})
    expect(unscale(numbered_codes(n), 1024, 1).output<std::int32_t>("found")[0] == 1,
           fmt::format("the flag was 1 before {} finite gradients and is 0 after them; it must stay 1", n),
           "your code writes the flag even if all results are finite; it must only set it, never reset it",
           "flag-overwritten");
}

TEST_CASE("one pass: every sector is read and written once, and finite gradients need no atomic", "[7.5]") {
  require_counters();
  const std::size_t n = 48 * 256;
  const worker::Reply reply = unscale(numbered_codes(n), 1024);
  expect_count(reply, "scaled.load_bytes", double(n) * 2, "each gradient once",
               "your code reads gradients more than once; it must read each of them once", "traffic");
  expect_count(
      reply, "scaled.load_sectors", double(n) * 2 / 32, "every sector of 32 bytes once",
      "adjacent lanes of your code do not read adjacent gradients; they must, so that a request covers whole sectors",
      "uncoalesced");
  expect_count(reply, "unscaled.load_bytes", 0, "no result is read",
               "your code reads its results from device memory; it must check each value before it stores it",
               "traffic");
  expect_count(
      reply, "unscaled.store_sectors", double(n) * 4 / 32, "every sector of 32 bytes once",
      "adjacent lanes of your code do not write adjacent gradients; they must, so that a request covers whole sectors",
      "uncoalesced");
  expect_count(reply, "unscaled.store_requests", double(n) * 4 / 512, "32 lanes with 16 bytes each per request",
               "a thread of your code writes fewer than 16 bytes at a time; it must write four floats at once",
               "narrow-access");
  expect_count(reply, "found.atomic_requests", 0, "all gradients are finite",
               "your code writes the flag even if all results are finite; it must only set it, never reset it",
               "flag-overwritten");
}

TEST_CASE("a warp issues one atomic, however many lanes find a non-finite result", "[7.5]") {
  require_counters();
  const std::size_t n = 48 * 128;  // 128 gradients a warp
  const worker::Reply reply = unscale(std::vector<std::uint16_t>(n, 0x7c00), 1024);
  expect(reply.output<std::int32_t>("found")[0] == 1, "all gradients are infinite, but the flag is not 1");
  expect_count(reply, "found.atomic_sectors", 48, "one lane of each warp",
               "your code sets the flag from several lanes of a warp, several times, or never; the lanes must vote, so "
               "that one lane sets it, once, after the loop and the tail",
               "atomic-per-lane");
}

TEST_CASE("a warp issues one atomic for all loop iterations and the tail", "[7.5]") {
  require_counters();
  // 48 warps and 3 gradients left over; then more than a grid of 1024 blocks takes at once.
  for (const std::size_t n : {48 * 128 + 3, 1024 * 1024 + 1024 + 2}) {
    const worker::Reply reply = unscale(std::vector<std::uint16_t>(n, 0x7c00), 1024);
    const double warps = std::min<double>(std::ceil(double(n / 4) / 256), 1024) * 8;
    const double reports = counter(reply, "found.atomic_sectors");
    expect(
        reports > 0 && reports <= warps,
        fmt::format("{} gradients, all infinite: {} atomics on the flag, from {} warps", n, reports, warps),
        "your code sets the flag in every iteration or again for the tail; a warp must do so at most once, after both",
        "atomic-per-iteration");
  }
}

TEST_CASE("the kernel of 7.5 agrees with the step of 7.3", "[whole]") {
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
           fmt::format("the step was {}, but the kernel's flag is {}",
                       step.output<double>("facts")[0] != 0 ? "taken" : "skipped",
                       kernel.output<std::int32_t>("found")[0]));
    if (bad) continue;
    const auto given = step.output<float>("given"), unscaled = kernel.output<float>("unscaled");
    for (std::size_t i = 0; i < given.size(); ++i)
      expect(given[i] == unscaled[i],
             fmt::format("gradient {} of the step is {}, that of the kernel is {}", i, given[i], unscaled[i]));
  }
}
