// Chapter 4's lab: right in every element, and without bank conflicts only where all arrays have the rows that they
// need.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/support/lab.hpp"

using namespace workbook;
using namespace workbook::test;

TEST_CASE("the lab's kernel is right in every element", "[4.10]") {
  expect_lab({1, 2, 2, 33, 40, 64}, 50);
}

TEST_CASE("the lab's kernel has no bank conflicts", "[4.10]") {
  require_counters();
  const worker::Reply reply = expect_lab({1, 1, 1, 32, 32, 64}, 51).reply;
  for (const char* way : {"store", "load"}) {
    const double wavefronts = counter(reply, fmt::format("shared.{}_wavefronts", way)),
                 ideal = counter(reply, fmt::format("shared.{}_ideal", way));
    expect(
        wavefronts == ideal,
        fmt::format("the {}s of shared memory take {} wavefronts, {} without bank conflicts", way, wavefronts, ideal),
        "rows that are accessed together start in the same banks", "bank-conflicts");
  }
}
