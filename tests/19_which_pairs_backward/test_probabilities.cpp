// Chapter 19, part by part: P, and what stays for dS.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/attention/inputs.hpp"
#include "tests/15_which_pairs/masks.hpp"
#include "tests/support/slips.hpp"

using namespace workbook;
using namespace workbook::test;

using Int = std::int64_t;

// ---- 19.4 P, and what stays for dS ----

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
struct FormedTile {
  std::vector<float> products, lse, P, S;
};
struct Two {
  double P, S;
};
/// A pair of a tile: of this row, which is a key, and this column, which is a query.
struct Formed {
  const FormCase& c;
  const FormedTile& tile;
  Int row, column;
  Int half() const { return row % 16 / 8; }
  Int i() const { return column % 2; }
  Int eight() const { return column / 8 * 8; }  ///< the first query of its eight
  Formed at(Int other_row, Int other_column) const { return {c, tile, other_row, other_column}; }
  double product() const { return tile.products[std::size_t(row * c.Br + column)]; }
  double lse(Int of) const { return tile.lse[std::size_t(of)]; }
  double got_P() const { return tile.P[std::size_t(row * c.Br + column)]; }
  bool requested() const { return c.half == 2 || (column < c.Br / 2) == (c.half == 0); }
  /// How far its key is before the diagonal.
  double distance() const { return double(c.first_query + column + c.window.Nk - c.window.Nq - c.first_key - row); }
  double derivative() const {
    const double tanh = c.cap > 0 ? std::tanh(c.scale * product() / c.cap) : 0;
    return 1 - tanh * tanh;
  }
  double score(double distance) const {
    const double scaled = c.scale * product();
    return (c.cap > 0 ? c.cap * std::tanh(scaled / c.cap) : scaled) - c.slope * std::abs(distance);
  }
  double score() const { return score(distance()); }
  bool counts() const {
    return !c.masked ||
           (c.first_query + column < c.window.Nq && c.window.attends(c.first_query + column, c.first_key + row));
  }
  /// With another exponent, a factor, or a pair that counts or not.
  Two with(double exponent) const { return of(counts() ? std::exp2(exponent) : 0); }
  Two of(double P) const { return {P, P * derivative()}; }
  Two right() const { return with(score() - lse(column)); }
  Two untouched() const { return {-1, product()}; }
};
struct OtherP {
  const char *id, *sentence;
  Two (*of)(const Formed& p);
  bool elsewhere = false;  ///< also for queries that are not requested
  Two two(const Formed& p) const { return p.requested() || elsewhere ? of(p) : p.untouched(); }
};
const OtherP other_P[] = {
    {"derivative-missing", "your code stores P in S; it must store P times the derivative",
     [](const Formed& p) {
       return Two{p.right().P, p.right().P};
     }},
    {"stays-the-product", "your code leaves the dot product in S; it must replace it by P times the derivative",
     [](const Formed& p) {
       return Two{p.right().P, p.product()};
     }},
    {"stays-the-derivative", "your code stores the derivative in S; it must store P times the derivative",
     [](const Formed& p) {
       return Two{p.right().P, p.derivative()};
     }},
    {"stays-the-score", "your code stores P times the score in S; it must store P times the derivative",
     [](const Formed& p) {
       return Two{p.right().P, p.right().P * p.score()};
     }},
    {"stays-times-the-product",
     "your code multiplies the dot product in S by P times the derivative; it must replace the dot product by P times "
     "the derivative",
     [](const Formed& p) {
       return Two{p.right().P, p.right().S * p.product()};
     }},
    {"stays-rounded",
     "your code computes P times the derivative from the rounded P; only P for dV must be rounded, and S must use P in "
     "fp32",
     [](const Formed& p) {
       return Two{p.right().P, p.got_P() * p.derivative()};
     }},
    {"stays-unmasked",
     "your code masks P only after it has stored P times the derivative; both must be 0 for a masked pair",
     [](const Formed& p) {
       return Two{p.right().P, p.of(std::exp2(p.score() - p.lse(p.column))).S};
     }},
    {"P-with-derivative", "your code multiplies P for dV by the derivative too; only S must include the derivative",
     [](const Formed& p) {
       return Two{p.right().S, p.right().S};
     }},
    {"P-unmasked",
     "your code does not apply the mask; in a `masked` tile, P must be 0 for queries outside `keys.queries[r]`",
     [](const Formed& p) { return p.of(std::exp2(p.score() - p.lse(p.column))); }},
    {"P-mask-inverted", "your code sets P of unmasked pairs to 0 and keeps masked pairs; it must do the opposite",
     [](const Formed& p) { return p.of(p.c.masked && p.counts() ? 0 : std::exp2(p.score() - p.lse(p.column))); }},
    {"P-mask-one-end",
     "your code does not mask queries before the key's range; it must test both ends of `keys.queries[r]`",
     [](const Formed& p) {
       const Int at = p.c.first_key + p.row + p.c.window.Nq - p.c.window.Nk;
       const bool counts =
           !p.c.masked || (p.c.first_key + p.row < p.c.window.Nk && p.c.first_query + p.column <= at + p.c.window.left);
       return p.of(counts ? std::exp2(p.score() - p.lse(p.column)) : 0);
     }},
    {"P-mask-one-end",
     "your code does not mask queries past the end of the key's range; it must test both ends of `keys.queries[r]`",
     [](const Formed& p) {
       const Int at = p.c.first_key + p.row + p.c.window.Nq - p.c.window.Nk;
       const bool counts = !p.c.masked || p.c.first_key + p.row >= p.c.window.Nk ||
                           std::max<Int>(0, at - p.c.window.right) <= p.c.first_query + p.column;
       return p.of(counts ? std::exp2(p.score() - p.lse(p.column)) : 0);
     }},
    {"P-mask-one-more",
     "your code keeps the query one past the key's range; ranges are half-open, so the query at the range's `last` "
     "must be masked",
     [](const Formed& p) {
       const Formed before = p.at(p.row, p.column - 1);
       return p.of(p.counts() || before.counts() ? std::exp2(p.score() - p.lse(p.column)) : 0);
     }},
    {"no-lse", "your code does not subtract the LSE; P must be the exponential of the score minus the LSE",
     [](const Formed& p) { return p.with(p.score()); }},
    {"lse-added", "your code adds the LSE to the score; it must subtract the LSE",
     [](const Formed& p) { return p.with(p.score() + p.lse(p.column)); }},
    {"lse-of-the-even-query",
     "your code uses the LSE of the first query for both queries of a lane; the second query must use y",
     [](const Formed& p) { return p.with(p.score() - p.lse(p.column - p.i())); }},
    {"query-by-its-row", "your code selects the LSE by r, the lane's key; it must select the LSE by i, the query",
     [](const Formed& p) { return p.with(p.score() - p.lse(p.column - p.i() + p.half())); }},
    {"P-lse-exchanged",
     "your code exchanges the LSEs of the lane's two queries; the first query must use x, and the second y",
     [](const Formed& p) { return p.with(p.score() - p.lse(p.column ^ 1)); }},
    {"base-e", "your code uses base e for the exponential; score and LSE are in units of log2, so it must use base 2",
     [](const Formed& p) { return p.with((p.score() - p.lse(p.column)) * double(std::numbers::log2e)); }},
    {"P-of-the-product", "your code computes P from the dot product; it must use the score that `score_mod` returns",
     [](const Formed& p) { return p.with(p.product() - p.lse(p.column)); }},
    {"P-without-distance",
     "your code passes distance 0 for every pair; it must pass how far the key is before the query's diagonal",
     [](const Formed& p) { return p.with(p.score(0) - p.lse(p.column)); }},
    {"P-distance-of-one-pair",
     "your code passes the distance of the lane's first pair for every pair; the distance must grow by 1 per query and "
     "decrease by 8 for the second key",
     [](const Formed& p) {
       return p.with(p.score(p.distance() - double(p.eight() + p.i() - 8 * p.half())) - p.lse(p.column));
     }},
    {"P-distance-of-one-key",
     "your code uses the distance of the first key for both keys; the distance of the second key must be 8 less",
     [](const Formed& p) { return p.with(p.score(p.distance() + double(8 * p.half())) - p.lse(p.column)); }},
    {"P-distance-of-one-key", "your code makes the distance of the second key 8 larger; it must be 8 less",
     [](const Formed& p) { return p.with(p.score(p.distance() + double(16 * p.half())) - p.lse(p.column)); }},
    {"P-distance-of-one-query",
     "your code uses the distance of the first query for both queries of a column group; the distance of the second "
     "query must be 1 larger",
     [](const Formed& p) { return p.with(p.score(p.distance() - double(p.i())) - p.lse(p.column)); }},
    {"P-distance-of-one-eight",
     "your code uses the distances of the first column group in every group; the distance must grow by 8 from one "
     "group to the next",
     [](const Formed& p) { return p.with(p.score(p.distance() - double(p.eight())) - p.lse(p.column)); }},
    {"P-distance-of-one-eight",
     "your code lets the distance decrease by 8 from one column group to the next; it must grow by 8",
     [](const Formed& p) { return p.with(p.score(p.distance() - double(2 * p.eight())) - p.lse(p.column)); }},
    {"P-registers",
     "your code exchanges two registers of the operand; the column group must select the pair of registers, and the "
     "key the register within the pair",
     [](const Formed& p) {
       const Int eight = p.column % 16 / 8;
       const Formed other = p.at(p.row - 8 * p.half() + 8 * eight, p.column - 8 * eight + 8 * p.half());
       return Two{other.right().P, p.right().S};
     }},
    {"P-neighbours", "your code exchanges the two queries of a register; the lower query must be in the lower half",
     [](const Formed& p) {
       return Two{p.at(p.row, p.column ^ 1).right().P, p.right().S};
     }},
    {"P-of-all-queries", "your code starts at column group 0; it must start at `begin`",
     [](const Formed& p) { return p.c.half == 0 && !p.requested() ? p.untouched() : p.right(); }, true},
    {"P-of-all-queries", "your code continues to the last column group of the tile; it must stop before `end`",
     [](const Formed& p) { return p.c.half == 1 && !p.requested() ? p.untouched() : p.right(); }, true},
    {"P-from-register-0",
     "your code counts the operands of P from `begin`; column group j must be stored in operand j / 2",
     [](const Formed& p) {
       if (p.c.half != 1) return p.requested() ? p.right() : p.untouched();
       return p.requested() ? Two{-1, p.right().S} : Two{p.at(p.row, p.column + p.c.Br / 2).right().P, p.product()};
     },
     true},
};
bool is_close(double got, double wanted, double relative) {
  return std::abs(got - wanted) <= relative * std::abs(wanted) + 2e-7;
}
bool fits(const Two& wanted, double P, double S) {
  return is_close(P, wanted.P, 1e-3) && is_close(S, wanted.S, 1e-4);
}

void check_P(Slips<OtherP>& slips, const FormCase& c, std::uint64_t seed) {
  const auto size = std::size_t(64 * c.Br);
  FormedTile tile{normal_values(size, seed), normal_values(std::size_t(c.Br), seed + 1), {}, {}};
  for (float& lse : tile.lse) lse = 3 + lse / 2;
  worker::Call request = window_call("probabilities", c.window);
  request.number("first_key", double(c.first_key)).number("first_query", double(c.first_query));
  request.number("Br", double(c.Br)).number("masked", c.masked).number("half", c.half);
  request.number("scale", c.scale).number("softcap", c.cap).number("alibi", c.slope);
  request.input("products", tile.products).input("lse", tile.lse);
  const worker::Reply reply = call(request.output<float>("P", size).output<float>("S", size));
  tile.P = reply.output<float>("P"), tile.S = reply.output<float>("S");
  for (Int row = 0; row < 64; ++row)
    for (Int column = 0; column < c.Br; ++column) {
      const Formed pair{c, tile, row, column};
      if (c.first_query + column >= c.window.Nq) continue;
      const double P = pair.got_P(), S = tile.S[std::size_t(row * c.Br + column)];
      const Two wanted = pair.requested() ? pair.right() : pair.untouched();
      slips.keep([&](const OtherP& slip) { return fits(slip.two(pair), P, S); });
      if (slips.wrong.empty() && !fits(wanted, P, S))
        slips.wrong = fmt::format(
            "in row {} and column {} (query {}, key {}) your code stores P = {} and S = {}, expected {} and {}{}; {}",
            row, column, c.first_query + column, c.first_key + row, P, S, wanted.P, wanted.S,
            pair.requested() ? "" : " (unchanged: -1 and the dot product)", c.text());
    }
}

}  // namespace

TEST_CASE("P is rounded for dV, and P times the derivative is kept for dS", "[19.4]") {
  Slips<OtherP> slips{{std::begin(other_P), std::end(other_P)}};
  const Window window{200, 230, 40, 9}, all{200, 200, unlimited, unlimited};
  std::uint64_t seed = 400;
  for (const Int Br : {64, 128})
    for (const auto& [scale, cap, slope] :
         {std::tuple{0.3, 0.0, 0.0}, {0.3, 0.0, 0.04}, {1.7, 2.0, 0.0}, {1.7, 2.0, 0.04}}) {
      check_P(slips, {all, 64, 0, Br, false, 2, scale, cap, slope}, ++seed);
      check_P(slips, {window, 64, 64, Br, true, int(seed % 3), scale, cap, slope}, ++seed);
      check_P(slips, {window, 192, 128, Br, true, int(seed % 2), scale, cap, slope}, ++seed);
    }
  for (const int half : {0, 1}) check_P(slips, {all, 0, 0, 64, false, half, 1.7, 2, 0.04}, ++seed);
  slips.expect_none(
      "your P or P·derivative is not that of the pair's score, its query's LSE and the mask; check how each element is "
      "computed",
      "formed");
}
