// Chapter 3's lab: right where warps take turns, which hides a barrier that is missing; and right for everybody.
#include <catch2/catch_test_macros.hpp>

#include "tests/support/lab.hpp"

using namespace workbook;
using namespace workbook::test;

TEST_CASE("the lab's kernel is right where warp 0 is always the first", "[3.12]") {
  expect_lab({1, 2, 2, 2, 130, 64}, 50, {}, Finds::are_left);
}

TEST_CASE("the lab's kernel is right whichever warp is the first", "[3.12]") {
  for (const double seed : {0., 1., 2.}) expect_lab({1, 2, 2, 2, 130, 64}, 51, {{"lane_seed", seed}});
}
