// Chapter 8's lab: right if a copy comes when it is waited for, as it does on the simulator; and right whenever it
// comes.
#include <catch2/catch_test_macros.hpp>

#include "tests/support/lab.hpp"

using namespace workbook;
using namespace workbook::test;

TEST_CASE("the lab's kernel is right if copies come when they are waited for", "[8.8]") {
  expect_lab(input("normal", {1, 1, 1, 33, 70, 64}, 50), {}, Finds::are_left);
}

TEST_CASE("the lab's kernel is right whenever a copy comes", "[8.8]") {
  for (const double seed : {0., 1.}) expect_lab(input("normal", {1, 1, 1, 33, 70, 64}, 51), {{"lane_seed", seed}});
}
