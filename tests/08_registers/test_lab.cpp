// Chapter 8's lab: correct if a copy completes at its wait, as on the simulator, and correct whenever it completes.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/support/lab.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

AttentionResult expect_the_lab(const Input& given, const Numbers& numbers = {}, Finds finds = Finds::end_the_call) {
  return expect_forward("lab", given, numbers, finds);
}

}  // namespace

TEST_CASE("the lab's kernel is correct if copies complete at their wait", "[8.8]") {
  expect_the_lab(input("normal", {1, 1, 1, 33, 70, 64}, 50), {}, Finds::are_left);
}

TEST_CASE("the lab's kernel is correct whenever a copy completes", "[8.8]") {
  for (const double seed : {0., 1.}) expect_the_lab(input("normal", {1, 1, 1, 33, 70, 64}, 51), {{"lane_seed", seed}});
}

TEST_CASE("the next tile is in flight while a tile is read", "[8.8]") {
  require_counters();
  const std::int64_t Nq = 33, Nk = 70;
  const worker::Reply reply = expect_the_lab(input("normal", {1, 1, 1, Nq, Nk, 64}, 52)).reply;
  const double waits = counter(reply, "async_partial_waits"),
               expected = double(tiles_of(Nq, 32) * (tiles_of(Nk, 16) - 1));
  expect(waits >= expected,
         fmt::format("{} waits leave copies in flight, expected {}: one for each tile but the last, in each block",
                     waits, expected),
         "your code waits for all copies before it reads a tile; those of tile j + 1 must be allowed to stay in flight",
         "waits-for-all");
}
