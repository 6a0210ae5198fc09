// Chapter 4's lab: right in every element, and without bank conflicts only where all arrays have the rows that they
// need.
#include <catch2/catch_test_macros.hpp>

#include "tests/support/forward_stage.hpp"
#include "tests/support/lab.hpp"

using namespace workbook;
using namespace workbook::test;

TEST_CASE("the lab's kernel is right in every element", "[4.10]") {
  expect_lab(input("normal", {1, 2, 2, 33, 40, 64}, 50));
}

TEST_CASE("the lab's kernel has no bank conflicts", "[4.10]") {
  require_counters();
  expect_no_bank_conflicts(expect_lab(input("normal", {1, 1, 1, 32, 32, 64}, 51)).reply);
}
