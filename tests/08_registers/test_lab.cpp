// Chapter 8's lab: right if a copy comes when it is waited for, as it does on the simulator; and right whenever it
// comes.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/support/lab.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

AttentionResult expect_the_lab(const Input& given, const Numbers& numbers = {}, Finds finds = Finds::end_the_call) {
  return expect_forward("lab", given, {.Bc = 16}, numbers, finds);
}

}  // namespace

TEST_CASE("the lab's kernel is right if copies come when they are waited for", "[8.8]") {
  expect_the_lab(input("normal", {1, 1, 1, 33, 70, 64}, 50), {}, Finds::are_left);
}

TEST_CASE("the lab's kernel is right whenever a copy comes", "[8.8]") {
  for (const double seed : {0., 1.}) expect_the_lab(input("normal", {1, 1, 1, 33, 70, 64}, 51), {{"lane_seed", seed}});
}

TEST_CASE("while a tile is read the next one is under way", "[8.8]") {
  require_counters();
  const std::int64_t Nq = 33, Nk = 70;
  const worker::Reply reply = expect_the_lab(input("normal", {1, 1, 1, Nq, Nk, 64}, 52)).reply;
  const double waits = counter(reply, "async_partial_waits"),
               expected = double(tiles_of(Nq, 32) * (tiles_of(Nk, 16) - 1));
  expect(waits >= expected,
         fmt::format("{} waits leave copies under way, expected {}: one for each tile but the last, in each block",
                     waits, expected),
         "the loop waits for all copies, and nothing is under way while a tile is read: those of tile j + 1 may be",
         "waits-for-all");
}
