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
#include "tests/15_which_pairs/asked_masks.hpp"
#include "tests/support/slips.hpp"

using namespace workbook;
using namespace workbook::test;

using Int = std::int64_t;

// ---- 19.4 P, and what stays for dS ----

namespace {

/// How a tile is asked for its P: numbers of the operation `probabilities`, all in units of log2.
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
  bool asked() const { return c.half == 2 || (column < c.Br / 2) == (c.half == 0); }
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
           (c.first_query + column < c.window.Nq && c.window.sees(c.first_query + column, c.first_key + row));
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
  bool elsewhere = false;  ///< what is said of queries that are not asked for, too
  Two two(const Formed& p) const { return p.asked() || elsewhere ? of(p) : p.untouched(); }
};
const OtherP other_P[] = {
    {"derivative-missing",
     "P alone stays in place of the product: dS takes P times the score modification's derivative",
     [](const Formed& p) {
       return Two{p.right().P, p.right().P};
     }},
    {"stays-the-product", "the product stays where it was: P times the derivative has to take its place",
     [](const Formed& p) {
       return Two{p.right().P, p.product()};
     }},
    {"stays-the-derivative", "the derivative alone takes the product's place: it has to be P times the derivative",
     [](const Formed& p) {
       return Two{p.right().P, p.derivative()};
     }},
    {"stays-the-score", "what stays is P times the score: it has to be P times the derivative",
     [](const Formed& p) {
       return Two{p.right().P, p.right().P * p.score()};
     }},
    {"stays-times-the-product", "what stays is multiplied by the product: it has to be P times the derivative",
     [](const Formed& p) {
       return Two{p.right().P, p.right().S * p.product()};
     }},
    {"stays-rounded", "what stays is made of the rounded P: only dV takes P rounded",
     [](const Formed& p) {
       return Two{p.right().P, p.got_P() * p.derivative()};
     }},
    {"stays-unmasked", "a pair that does not count has P = 0, and its P·derivative stays: both have to be 0",
     [](const Formed& p) {
       return Two{p.right().P, p.of(std::exp2(p.score() - p.lse(p.column))).S};
     }},
    {"P-with-derivative", "dV takes P times the derivative: the derivative belongs to dS alone",
     [](const Formed& p) {
       return Two{p.right().S, p.right().S};
     }},
    {"P-unmasked", "pairs that do not count have a P: in a masked tile it is to be 0",
     [](const Formed& p) { return p.of(std::exp2(p.score() - p.lse(p.column))); }},
    {"P-mask-inverted", "pairs that count become 0, and the others stay",
     [](const Formed& p) { return p.of(p.c.masked && p.counts() ? 0 : std::exp2(p.score() - p.lse(p.column))); }},
    {"P-mask-one-end", "queries before the key's range have a P: both ends are to be asked",
     [](const Formed& p) {
       const Int at = p.c.first_key + p.row + p.c.window.Nq - p.c.window.Nk;
       const bool counts =
           !p.c.masked || (p.c.first_key + p.row < p.c.window.Nk && p.c.first_query + p.column <= at + p.c.window.left);
       return p.of(counts ? std::exp2(p.score() - p.lse(p.column)) : 0);
     }},
    {"P-mask-one-end", "queries behind the key's range have a P: both ends are to be asked",
     [](const Formed& p) {
       const Int at = p.c.first_key + p.row + p.c.window.Nq - p.c.window.Nk;
       const bool counts = !p.c.masked || p.c.first_key + p.row >= p.c.window.Nk ||
                           std::max<Int>(0, at - p.c.window.right) <= p.c.first_query + p.column;
       return p.of(counts ? std::exp2(p.score() - p.lse(p.column)) : 0);
     }},
    {"P-mask-one-more", "the query behind a key's range has a P: its last query is queries.last - 1",
     [](const Formed& p) {
       const Formed before = p.at(p.row, p.column - 1);
       return p.of(p.counts() || before.counts() ? std::exp2(p.score() - p.lse(p.column)) : 0);
     }},
    {"no-lse", "the LSE is not subtracted", [](const Formed& p) { return p.with(p.score()); }},
    {"lse-added", "the LSE is added to the score: it must be subtracted",
     [](const Formed& p) { return p.with(p.score() + p.lse(p.column)); }},
    {"lse-of-the-even-query", "both queries of a lane take the LSE of the first: .y is the second one's",
     [](const Formed& p) { return p.with(p.score() - p.lse(p.column - p.i())); }},
    {"query-by-its-row", "the LSE goes by the lane's key: of its two queries the first one takes .x, the second one .y",
     [](const Formed& p) { return p.with(p.score() - p.lse(p.column - p.i() + p.half())); }},
    {"P-lse-exchanged", "a lane's two queries take each other's LSE",
     [](const Formed& p) { return p.with(p.score() - p.lse(p.column ^ 1)); }},
    {"base-e", "P is e to the score: scores and the LSE are in units of log2, so that it is 2 to it",
     [](const Formed& p) { return p.with((p.score() - p.lse(p.column)) * double(std::numbers::log2e)); }},
    {"P-of-the-product", "P is formed of the product itself: score_mod makes the score of it",
     [](const Formed& p) { return p.with(p.product() - p.lse(p.column)); }},
    {"P-without-distance", "P is recomputed with a distance of 0 for every pair",
     [](const Formed& p) { return p.with(p.score(0) - p.lse(p.column)); }},
    {"P-distance-of-one-pair",
     "every pair has the distance of the lane's first one: a query later it is 1 more, 8 keys later 8 less",
     [](const Formed& p) {
       return p.with(p.score(p.distance() - double(p.eight() + p.i() - 8 * p.half())) - p.lse(p.column));
     }},
    {"P-distance-of-one-key", "both of a lane's keys have the distance of the first one: of the second it is 8 less",
     [](const Formed& p) { return p.with(p.score(p.distance() + double(8 * p.half())) - p.lse(p.column)); }},
    {"P-distance-of-one-key",
     "the lane's second key is taken to be 8 further before the diagonal: its distance is 8 less",
     [](const Formed& p) { return p.with(p.score(p.distance() + double(16 * p.half())) - p.lse(p.column)); }},
    {"P-distance-of-one-query",
     "both of a lane's queries have the distance of the first one: of the second it is 1 more",
     [](const Formed& p) { return p.with(p.score(p.distance() - double(p.i())) - p.lse(p.column)); }},
    {"P-distance-of-one-eight", "all eights of queries have the distances of the first: each further one is 8 more",
     [](const Formed& p) { return p.with(p.score(p.distance() - double(p.eight())) - p.lse(p.column)); }},
    {"P-distance-of-one-eight", "with each eight of queries the distance falls by 8: it grows",
     [](const Formed& p) { return p.with(p.score(p.distance() - double(2 * p.eight())) - p.lse(p.column)); }},
    {"P-registers",
     "a register of P is taken for another: of 16 queries the first eight are registers 0 and 1, of the lane's first "
     "and of its second key",
     [](const Formed& p) {
       const Int eight = p.column % 16 / 8;
       const Formed other = p.at(p.row - 8 * p.half() + 8 * eight, p.column - 8 * eight + 8 * p.half());
       return Two{other.right().P, p.right().S};
     }},
    {"P-neighbours", "the two neighbours of a register of P are exchanged: the first query is its lower half",
     [](const Formed& p) {
       return Two{p.at(p.row, p.column ^ 1).right().P, p.right().S};
     }},
    {"P-of-all-queries", "all queries from the first one on are formed: they have to begin with eight `begin`",
     [](const Formed& p) { return p.c.half == 0 && !p.asked() ? p.untouched() : p.right(); }, true},
    {"P-of-all-queries", "all queries up to the last one are formed: they have to end with eight end - 1",
     [](const Formed& p) { return p.c.half == 1 && !p.asked() ? p.untouched() : p.right(); }, true},
    {"P-from-register-0", "P of the queries from `begin` on goes where that of the tile's first ones belongs",
     [](const Formed& p) {
       if (p.c.half != 1) return p.asked() ? p.right() : p.untouched();
       return p.asked() ? Two{-1, p.right().S} : Two{p.at(p.row, p.column + p.c.Br / 2).right().P, p.product()};
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
  worker::Call request = asked("probabilities", c.window);
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
      const Two wanted = pair.asked() ? pair.right() : pair.untouched();
      slips.keep([&](const OtherP& slip) { return fits(slip.two(pair), P, S); });
      if (slips.wrong.empty() && !fits(wanted, P, S))
        slips.wrong = fmt::format(
            "of row {} and column {}, query {} and key {}, P is {} and {} stays for dS: right is {} and {}{}; {}", row,
            column, c.first_query + column, c.first_key + row, P, S, wanted.P, wanted.S,
            pair.asked() ? "" : " (P as it was, -1, and the product)", c.text());
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
  slips.expect_none("P or what stays for dS is not that of the pair's score, its query's LSE and its mask", "formed");
}
