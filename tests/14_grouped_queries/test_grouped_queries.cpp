// Chapter 14: heads that share K and V, packed into the rows of a tile.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

TEST_CASE("grouped queries agree with the oracle", "[whole]") {
  for (const double pack : {0, 1, 2})
    for (const bool causal : {false, true})
      for (const std::int64_t d : head_dims())
        for (const std::int64_t G : {1, 2, 3, 8}) {
          const Input given = input("normal", {2, 2 * G, 2, 37, 100, d}, 7, causal);
          Numbers numbers = small_tiles(d).numbers();
          if (pack > 0) numbers["pack"] = pack;
          expect_attention(given.problem, given.name, numbers);
        }
}

}  // namespace
