// Chapter 3's lab: right in one order of threads, which hides that a barrier is missing; and right in all.
#include <catch2/catch_test_macros.hpp>

#include "tests/support/lab.hpp"

using namespace workbook;
using namespace workbook::test;

TEST_CASE("the lab kernel is correct in the simulator's default thread order", "[3.13]") {
  expect_lab(input("normal", {1, 2, 2, 2, 130, 64}, 50), {}, Finds::are_left);
}

TEST_CASE("the lab kernel is correct in every thread order", "[3.13]") {
  for (const double seed : {0., 1., 2.}) expect_lab(input("normal", {1, 2, 2, 2, 130, 64}, 51), {{"lane_seed", seed}});
}
