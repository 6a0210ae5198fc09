// Chapter 3's plain fused kernel: one thread a row, chapter 2's loop.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tests/support/lab.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

AttentionResult expect_plain(const Input& given, const Numbers& numbers = {}) {
  return expect_forward("plain", given, numbers);
}

/// Scores of about `spike` for the key, of about `base` for all others, in every row.
Input spike_at(std::int64_t key, float spike, float base, std::int64_t Nk) {
  Input given = input("normal", {1, 1, 1, 40, Nk, 64}, 62);
  const float g = std::sqrt(std::max(std::abs(spike), std::abs(base)));
  add_to_scores(
      given, [&](std::int64_t) { return g; }, [&](std::int64_t j) { return (j == key ? spike : base) / g; });
  return given;
}

}  // namespace

TEST_CASE("the plain kernel agrees with the oracle", "[3.5]") {
  expect_plain(input("normal", {1, 2, 2, 2, 130, 64}, 60));
  for (const auto& [Nq, Nk] : {std::pair{1, 1}, {65, 32}, {64, 33}, {70, 95}})
    expect_plain(input("normal", {2, 2, 2, Nq, Nk, 64}, 61));
  for (const InputKind& kind : input_kinds()) expect_plain(input(kind.name, {1, 1, 1, 40, 70, 64}, 65));
  for (const float scale : {-0.2f, 0.0f}) expect_plain(with_scale(input("normal", {1, 1, 1, 40, 70, 64}, 66), scale));
}

TEST_CASE("the plain kernel's maximum may rise in a later tile", "[3.5]") {
  for (const std::int64_t key : {0, 40, 95}) expect_plain(spike_at(key, 12, -3, 96));
  expect_plain(spike_at(0, 40, -60, 96));  // and it never falls, where a factor would be infinite
}

TEST_CASE("the plain kernel starts at m = -inf and masks missing keys", "[3.5]") {
  for (const std::int64_t Nk : {1, 33, 64}) expect_plain(spike_at(0, -200, -190, Nk));
}

TEST_CASE("the plain kernel is correct in every thread order", "[3.5]") {
  for (const double seed : {0., 1., 2.})
    expect_plain(input("normal", {1, 1, 1, 70, 100, 64}, 63), {{"lane_seed", seed}});
}

TEST_CASE("the plain kernel reads K and V once per 64 queries, with two barriers per tile", "[3.5]") {
  require_counters();
  const Shape shape{1, 1, 1, 128, 96, 64};
  const worker::Reply reply = expect_plain(input("normal", shape, 64)).reply;
  for (const char* tensor : {"K", "V"}) {
    expect_count(reply, fmt::format("{}.load_bytes", tensor), 2. * double(shape.Nk * shape.d) * 2,
                 fmt::format("two blocks read {} once each", tensor),
                 "your code must read each K/V tile once per block; all threads read it from shared memory", "traffic");
  }
  expect_count(reply, "block_barriers", 2. * 3 * 2, "two blocks · three K/V tiles · two barriers",
               "one barrier must follow the loads, and one must separate the last read from the next loads",
               "barriers");
}

TEST_CASE("the plain kernel agrees with the tensor-core kernel", "[whole]") {
  const Input given = input("normal", {1, 2, 2, 70, 150, 64}, 65);
  const AttentionResult plain = expect_plain(given), tiled = attention(given.problem, {});
  float most = 0;
  for (std::size_t i = 0; i < plain.O.values.size(); ++i)
    most = std::max(most, std::abs(plain.O.values[i] - tiled.O.values[i]));
  expect(most < 2e-3F, fmt::format("an element of O differs by {:.2g} between the two kernels", most), "", "unknown");
}
