// Chapter 5's lab: right where all warps have 32 queries, and reading only keys that there are for every length. (The
// simulator ends a block that reads what is not there, so that its output is missing; a GPU goes on.)
#include <catch2/catch_test_macros.hpp>

#include "tests/support/lab.hpp"

using namespace workbook;
using namespace workbook::test;

TEST_CASE("the lab's kernel is right where every lane has a query", "[5.6]") {
  std::uint64_t seed = 50;
  for (const auto& [Nq, Nk] : {std::pair{32, 70}, {64, 40}})
    expect_lab(input("normal", {1, 2, 2, Nq, Nk, 64}, ++seed, true));
}

TEST_CASE("the lab's kernel reads no key that there is not", "[5.6]") {
  std::uint64_t seed = 60;
  for (const auto& [Nq, Nk] : {std::pair{40, 40}, {40, 70}, {70, 40}})
    expect_lab(input("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, true));
}
