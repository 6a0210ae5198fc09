// Chapter 5's lab: its output is right if all warps have 32 queries, and it must read only existing keys for every
// length. The simulator stops a block that reads out of bounds, so its output is missing; a GPU usually continues.
#include <catch2/catch_test_macros.hpp>

#include "tests/support/lab.hpp"

using namespace workbook;
using namespace workbook::test;

TEST_CASE("the lab's kernel is right if every lane has a query", "[5.6]") {
  std::uint64_t seed = 50;
  for (const auto& [Nq, Nk] : {std::pair{32, 70}, {64, 40}})
    expect_lab(input("normal", {1, 2, 2, Nq, Nk, 64}, ++seed, true));
}

TEST_CASE("the lab's kernel reads no key past the end", "[5.6]") {
  std::uint64_t seed = 60;
  for (const auto& [Nq, Nk] : {std::pair{40, 40}, {40, 70}, {70, 40}})
    expect_lab(input("normal", {1, 1, 1, Nq, Nk, 64}, ++seed, true));
}
