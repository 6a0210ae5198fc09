// Chapter 7's underflow table follows from the formats.
#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "tests/07_mixed_precision/underflow.hpp"

using namespace ch07_tests;

namespace {

std::vector<UnderflowRow> table(double gradient, std::vector<int> exponents, std::int64_t N = 130) {
  UnderflowOptions options;
  options.lengths = {N};
  options.d = 32;
  options.tokens = 1 << 16;
  options.gradient = gradient;
  options.scale_exponents = std::move(exponents);
  return underflow_table(options);
}

}  // namespace

TEST_CASE("with a scale that fits, the errors are those of a few roundings to 11 bits") {
  for (const UnderflowRow& row : table(0.2, {12, 16, 20})) {
    CHECK(row.zero_dS < 0.001);
    CHECK(row.infinite == 0);
    for (const double error : {row.error_dQ, row.error_dK, row.error_dV}) {
      CHECK(error > 0);
      CHECK(error < 4 * std::ldexp(1.0, -11));
    }
  }
}

TEST_CASE("without scaling dS is the first to become zero, and dQ and dK lose more than dV") {
  const UnderflowRow row = table(0.2, {0})[0];
  CHECK(row.zero_dS > 10 * row.zero_dO);
  CHECK(row.zero_dS > 10 * row.zero_dP);
  CHECK(row.error_dQ > 1.5 * row.error_dV);
  CHECK(row.error_dK > 1.5 * row.error_dV);
}

TEST_CASE("gradients that are all lost have a relative error of 1") {
  const UnderflowRow row = table(1e-6, {0})[0];
  CHECK(row.zero_dO == 1);
  CHECK(row.zero_dS == 0);  // dO is 0, so dS is 0 before anything is stored
  CHECK(row.error_dQ == 1);
  CHECK(row.error_dK == 1);
  CHECK(row.error_dV == 1);
}

TEST_CASE("too large a scale overflows") {
  const UnderflowRow row = table(0.2, {40})[0];
  CHECK(row.infinite > 0.01);
  CHECK_FALSE(std::isfinite(row.error_dQ));
}

TEST_CASE("longer sequences lose more of dS") {
  CHECK(table(0.2, {0}, 512)[0].zero_dS > table(0.2, {0}, 64)[0].zero_dS);
}
