// Chapter 19, part by part: P, and the factors of dS.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "common/attention/inputs.hpp"
#include "tests/15_which_pairs/mask_cases.hpp"
#include "tests/support/subject.hpp"

using namespace workbook;
using namespace workbook::test;

using Int = std::int64_t;

// ---- 19.4 P, and the factors of dS ----

namespace {

/// Which part of P of a tile is requested: numbers of the operation `probabilities`, all in units of log2.
struct FormCase {
  Window window;
  Int first_key, first_query, Br;
  bool masked;
  int half;  ///< of the queries: 0, 1, or 2 for all
  double scale, cap, slope;
  std::string text() const {
    return fmt::format("a tile (64, {}) from key {} and query {} on, {}, {} queries, scale {}, cap {}, slope {}, {}",
                       Br, first_key, first_query, masked ? "masked" : "full",
                       half == 0   ? "the first half of the"
                       : half == 1 ? "the second half of the"
                                   : "all",
                       scale, cap, slope, window.text());
  }
};
bool is_close(double got, double wanted, double relative) {
  return std::abs(got - wanted) <= relative * std::abs(wanted) + 2e-7;
}

void expect_P(const FormCase& c, std::uint64_t seed) {
  const auto size = std::size_t(64 * c.Br);
  const std::vector<float> products = normal_values(size, seed);
  std::vector<float> all_lse = normal_values(std::size_t(c.Br), seed + 1);
  for (float& lse : all_lse) lse = 3 + lse / 2;
  worker::Call request = window_call("probabilities", c.window);
  request.number("first_key", double(c.first_key)).number("first_query", double(c.first_query));
  request.number("Br", double(c.Br)).number("masked", c.masked).number("half", c.half);
  request.number("scale", c.scale).number("softcap", c.cap).number("alibi", c.slope);
  request.input("products", products).input("lse", all_lse);
  const worker::Reply reply = call(request.output<float>("P", size).output<float>("S", size));
  const auto all_P = reply.output<float>("P"), all_S = reply.output<float>("S");
  for (Int row = 0; row < 64; ++row)
    for (Int column = 0; column < c.Br; ++column) {
      const auto at = std::size_t(row * c.Br + column);
      const Int key = c.first_key + row, query = c.first_query + column;
      if (query >= c.window.Nq) continue;
      const bool requested = c.half == 2 || (column < c.Br / 2) == (c.half == 0);
      const double scaled = c.scale * double(products[at]), tanh = c.cap > 0 ? std::tanh(scaled / c.cap) : 0;
      const double distance = double(query + c.window.Nk - c.window.Nq - key);
      const double score = (c.cap > 0 ? c.cap * tanh : scaled) - c.slope * std::abs(distance);
      const bool counts = !c.masked || c.window.attends(query, key);
      const double formed = counts ? std::exp2(score - double(all_lse[std::size_t(column)])) : 0;
      const double P = requested ? formed : -1, S = requested ? formed * (1 - tanh * tanh) : double(products[at]);
      if (is_close(all_P[at], P, 1e-3) && is_close(all_S[at], S, 1e-4)) continue;
      expect(false, fmt::format("in row {} and column {} (query {}, key {}) your code stores P = {} and S = {}, "
                                "expected {} and {}{}; {}",
                                row, column, query, key, all_P[at], all_S[at], P, S,
                                requested ? "" : " (unchanged: -1 and the dot product)", c.text()));
    }
  expect(true, "");
}

}  // namespace

TEST_CASE("P is rounded for dV, and P times the derivative is kept for dS", "[19.4]") {
  const Window window{200, 230, 40, 9}, all{200, 200, unlimited, unlimited};
  std::uint64_t seed = 400;
  for (const Int Br : {64, 128})
    for (const auto& [scale, cap, slope] :
         {std::tuple{0.3, 0.0, 0.0}, {0.3, 0.0, 0.04}, {1.7, 2.0, 0.0}, {1.7, 2.0, 0.04}}) {
      expect_P({all, 64, 0, Br, false, 2, scale, cap, slope}, ++seed);
      expect_P({window, 64, 64, Br, true, int(seed % 3), scale, cap, slope}, ++seed);
      expect_P({window, 192, 128, Br, true, int(seed % 2), scale, cap, slope}, ++seed);
    }
  for (const int half : {0, 1}) expect_P({all, 0, 0, 64, false, half, 1.7, 2, 0.04}, ++seed);
}
