// What goes wrong in the backward pass.
#include "tests/06_backward/mistakes.hpp"

#include <algorithm>
#include <cmath>

#include "common/attention/half.hpp"

namespace workbook::test::ch06 {
namespace {

using judge::GradientModel, judge::Index, judge::infinity, judge::ln_2, judge::log2_e, judge::round_down;
using Table = judge::MistakeTable<GradientModel>;

/// The rows of the block that owns the row of pair (i, j): queries for dQ, keys for dK and dV. Tiles of the others pass
/// by.
struct Pair {
  Index i, j, first, last;  ///< rows that the block owns
  Index tile;               ///< first row of the tile that passes by

  Pair(const GradientModel& m, Index i_, Index j_) : i(i_), j(j_) {
    const Index row = m.of_queries ? i : j, rows = m.of_queries ? m.Nq() : m.Nk();
    first = round_down(row, m.owned), last = std::min(rows, first + m.owned) - 1;
    tile = round_down(m.of_queries ? j : i, m.passing);
  }
  /// Whether the block takes the tile, if query i sees the keys j <= i + offset.
  bool visited(const GradientModel& m, Index offset) const {
    return m.of_queries ? tile <= last + offset : tile + m.passing > first - offset;
  }
  /// Whether row `own` of the block does not see all of the tile.
  bool crossed(const GradientModel& m, Index own, Index offset) const {
    return m.of_queries ? tile + m.passing > own + 1 + offset : tile < own - offset;
  }
  /// Whether any does not.
  bool masked(const GradientModel& m, Index offset) const { return crossed(m, m.of_queries ? first : last, offset); }
};
bool of_values(const GradientModel& m) {
  return m.of_values;
}

/// D is Σ a·b over `rows` rows from `first` on, of the first `columns` columns.
double sum(const Tensor<double>& a, const Tensor<double>& b, Index first, Index rows, Index columns) {
  double result = 0;
  for (Index at = first * a.sizes[3]; at < (first + rows) * a.sizes[3]; ++at)
    if (at % a.sizes[3] < columns) result += a.values[std::size_t(at)] * b.values[std::size_t(at)];
  return result;
}
/// The same over the queries of a warp, whose lanes take eight columns each.
double sum_of_warp(const Tensor<double>& a, const Tensor<double>& b, Index row) {
  const Index all = Index(a.values.size()) / a.sizes[3], d = a.sizes[3];
  const Index queries = std::max<Index>(1, 32 / std::max<Index>(1, d / 8)), first = round_down(row, queries);
  return sum(a, b, first, std::min(queries, all - first), d);
}

/// dS = P∘(dP - D), and the scale.
Table differences() {
  // D of query i of a head is of(O, dO, row), rows of all heads numbered in one go.
  const auto D = [](auto of) {
    return [=](GradientModel& m) {
      m.D = [=, in = m.inputs](Index head, Index i) {
        return of(in->saved.O, in->dO, head * in->problem.shape.Nq + i);
      };
    };
  };
  Table table([](const GradientModel& m) { return !m.of_values; });
  table.add("D-not-reset", "D is not set back to 0 before each row: it still holds the rows before it",
            [](GradientModel& m) {
              m.D = [in = m.inputs, Nq = m.Nq(), d = m.d()](Index head, Index i) {
                return sum(in->saved.O, in->dO, head * Nq, i + 1, d);
              };
            });
  table.add("D-missing", "D is not subtracted: dS is P∘(dP - D), and this is what P∘dP gives",
            D([](const auto&, const auto&, Index) { return 0.0; }));
  table.add("D-added", "D is added to dP, not subtracted",
            D([](const auto& O, const auto& dO, Index row) { return -sum(O, dO, row, 1, O.sizes[3]); }));
  table.add("D-of-dO", "D is rowsum(dO∘dO), not rowsum(dO∘O)",
            D([](const auto& O, const auto& dO, Index row) { return sum(dO, dO, row, 1, O.sizes[3]); }));
  table.add("D-of-O", "D is rowsum(O∘O), not rowsum(dO∘O)",
            D([](const auto& O, const auto&, Index row) { return sum(O, O, row, 1, O.sizes[3]); }));
  table.add("D-of-eight", "D holds the first eight products of a row, those of one lane",
            D([](const auto& O, const auto& dO, Index row) { return sum(O, dO, row, 1, 8); }));
  table.add("D-of-warp", "D is the sum over all queries of a warp: the shuffles reach beyond the lanes of one query",
            D([](const auto& O, const auto& dO, Index row) { return sum_of_warp(O, dO, row); }));
  table.add(
      "D-read-as-fp16",
      "D is formed from O and dO read as fp16: exercise 6.2 must take them as Pair<Element>, not as half2",
      [=](GradientModel& m) {
        const auto misread = [](Tensor<double> tensor) {
          for (double& x : tensor.values) x = half_to_float(float_to_bfloat16(float(x)));
          return tensor;
        };
        D([O = misread(m.inputs->saved.O), dO = misread(m.inputs->dO)](const auto&, const auto&, Index row) {
          return sum(O, dO, row, 1, O.sizes[3]);
        })
        (m);
      },
      [](const GradientModel& m) { return m.rounded == judge::to_bf16; });
  table.add("no-scale", "{gradient} is not multiplied by the scale: both factors of S = scale·QKᵀ get it",
            [](GradientModel& m) { m.factor = 1; });
  table.add("scale-twice", "{gradient} is multiplied by the scale twice",
            [](GradientModel& m) { m.factor *= m.factor; });
  table.add("P-inside", "dS is P∘dP - D: P multiplies the difference dP - D",
            [](GradientModel& m) { m.dS = [](float P, double dP, double D) { return float(P * dP - D); }; });
  table.add("no-P", "dS is dP - D: the factor P is missing",
            [](GradientModel& m) { m.dS = [](float, double dP, double D) { return float(dP - D); }; });
  table.add("dS-of-the-product", "dS is formed with the product Q·K in the place of P: P has to come first",
            [](GradientModel& m) { m.dS_of_product = true; });
  table.add("K-for-V", "dP is formed from K: dP = dO·Vᵀ", [](GradientModel& m) { m.dP_of_K = true; });
  table.add(
      "V-for-K", "dS is multiplied with V: dQ = scale·dS·K", [](GradientModel& m) { m.other_right = true; },
      [](const GradientModel& m) { return m.of_queries; });
  table.add(
      "dO-for-Q", "dSᵀ is multiplied with dO: dK = scale·dSᵀ·Q", [](GradientModel& m) { m.other_right = true; },
      [](const GradientModel& m) { return !m.of_queries; });
  for (const char* id : {"P-for-dS", "dS-for-P"})  // dS-for-P: both have changed places
    table.add(id, "the product is taken with P where dS belongs", [](GradientModel& m) { m.left_is_P = true; });
  return table;
}
Table of_dV() {
  Table table(of_values);
  table.add("scale-in-dV", "dV is multiplied by the scale: dV = PᵀdO has none",
            [](GradientModel& m) { m.factor = m.inputs->problem.scale; });
  table.add("Q-for-dO", "Pᵀ is multiplied with Q: dV = PᵀdO", [](GradientModel& m) { m.other_right = true; });
  table.add("dS-for-P", "the product is taken with dS where P belongs", [](GradientModel& m) { m.left_is_P = false; });
  return table;
}

/// P = exp(S - LSE).
Table probabilities() {
  const auto P = [](auto of) { return [=](GradientModel& m) { m.P = of; }; };
  Table table;
  table.add(
      "scale-sign-lost", "the scores are multiplied by the scale without its sign",
      [](GradientModel& m) { m.score_scale = std::abs(m.score_scale); },
      [](const GradientModel& m) { return m.score_scale < 0; });
  table.add("scores-not-scaled", "the scores are not multiplied by the scale before the exponential",
            [](GradientModel& m) { m.score_scale = 1; });
  table.add("max-for-lse",
            "P is recomputed with the row's maximum in place of the LSE, so that it is never divided by its sum",
            P([](double score, double, double maximum) { return float(std::exp(score - maximum)); }));
  table.add(
      "lse-scaled", "the LSE is multiplied by the scale: it is that of the scaled scores, which alone have it",
      [](GradientModel& m) {
        m.P = [scale = m.score_scale](double score, double lse, double) {
          return float(std::exp(score - double(scale) * lse));
        };
      },
      [](const GradientModel& m) { return m.score_scale != 1; });
  table.add("no-lse", "P is exp(S): the LSE is not subtracted",
            P([](double score, double, double) { return float(std::exp(score)); }));
  table.add("base-2-scores", "the scores are taken as exponents of 2: the scale does not hold log2(e), the LSE does",
            P([](double score, double lse, double) { return float(std::exp2(score - lse * log2_e)); }));
  table.add(
      "natural-lse",
      "the LSE is subtracted as a natural logarithm, from scores in units of log2: it must be multiplied by log2(e)",
      P([](double score, double lse, double) { return float(std::exp2(score * log2_e - lse)); }));
  table.add("lse-scaled",
            "the LSE is multiplied by the scale too: P = exp2(S·scale - LSE), the scale is that of S alone",
            [](GradientModel& m) {
              m.P = [scale = m.score_scale](double score, double lse, double) {
                return float(std::exp(score - scale * log2_e * lse));
              };
            });
  table.add("log2-e-missing", "the exponent of 2 lacks the factor log2(e): P = 2^((S − LSE)·log2(e))",
            P([](double score, double lse, double) { return float(std::exp2(score - lse)); }));
  table.add("lse-added", "the LSE is added to the score: it must be subtracted",
            P([](double score, double lse, double) { return float(std::exp(score + lse)); }));
  table.add("base-e", "scores and LSE are in units of log2, but the exponential is e's",
            P([](double score, double lse, double) { return float(std::exp((score - lse) * log2_e)); }));
  return table;
}

/// The mask of a tile that passes by: which of its keys exist, and which of them a query sees. Keys and queries are
/// numbered from the first of their blocks on.
struct TileMask {
  bool needed;
  Index keys, diagonal;  ///< key k counts for query q if k < keys and k <= q + diagonal
  Index key, query;      ///< of the pair

  /// always: every tile is masked, needed or not.
  TileMask(const GradientModel& m, const Pair& pair, bool always) {
    const Index first_query = m.of_queries ? pair.first : pair.tile, first_key = m.of_queries ? pair.tile : pair.first;
    needed = always || (m.of_queries && pair.tile + m.passing > m.Nk());
    if (m.causal()) needed = needed || pair.masked(m, m.offset());
    keys = m.of_queries ? std::min(m.passing, m.Nk() - pair.tile) : pair.last - pair.first + 1;
    diagonal = m.causal() ? first_query + m.offset() - first_key : m.passing;
    key = pair.j - first_key, query = pair.i - first_query;
  }
  bool counts() const { return !needed || (key < keys && key <= query + diagonal); }
};

/// Where each tile's mask is changed alike; tiles that nobody sees are passed over.
Table tile_masks() {
  const auto in_tiles = [](auto change, bool always = false) {
    return [=](GradientModel& m) {
      m.sees = [=, right = m](Index i, Index j) {
        const Pair pair(right, i, j);
        if (right.causal() && !pair.visited(right, right.offset())) return false;
        TileMask mask(right, pair, always);
        change(mask, right, pair);
        return mask.counts();
      };
    };
  };
  Table table(&GradientModel::tiled);
  for (const bool always : {false, true}) {
    table.add("mask-exchanged", "key and query change places in the mask",
              in_tiles([](TileMask& mask, const auto&, const auto&) { std::swap(mask.key, mask.query); }, always));
    table.add("mask-row-for-column",
              "within each fragment of 16 x 16 the mask is asked about the pair across the diagonal: an element's row "
              "and column in the fragment have changed places, its first key and first query have not",
              in_tiles(
                  [](TileMask& mask, const auto&, const auto&) {
                    const Index key = mask.key % 16, query = mask.query % 16;
                    mask.key += query - key, mask.query += key - query;
                  },
                  always));
    table.add("mask-without-place",
              "the mask is asked about places in a fragment: key and query are numbered from the first of their blocks "
              "on, so that it begins at `key` and `query`",
              in_tiles([](TileMask& mask, const auto&, const auto&) { mask.key %= 16, mask.query %= 16; }, always));
  }
  Table diagonals(&GradientModel::causal);
  constexpr const char* sentence =
      "the diagonal of a tile is wrong: of its keys a block's first query sees those up to first query + (Nk − Nq) − "
      "first key";
  diagonals.add("tile-diagonal", sentence,
                in_tiles([](TileMask& mask, const auto&, const auto&) { mask.diagonal = -mask.diagonal; }));
  for (const Index sign : {0, 1})
    diagonals.add("tile-diagonal", sentence, in_tiles([=](TileMask& mask, const GradientModel& m, const auto&) {
                    mask.diagonal = m.offset() - sign * (mask.diagonal - m.offset());
                  }));
  diagonals.add("tile-diagonal", sentence, in_tiles([](TileMask& mask, const GradientModel& m, const Pair& pair) {
                  mask.diagonal += 2 * (m.of_queries ? pair.tile : pair.first);
                }));
  diagonals.add("tile-diagonal", sentence, in_tiles([](TileMask& mask, const GradientModel& m, const Pair& pair) {
                  mask.diagonal -= m.of_queries ? pair.first : pair.tile;
                }));
  diagonals.add("tile-diagonal", sentence, in_tiles([](TileMask& mask, const GradientModel& m, const Pair& pair) {
                  mask.diagonal += m.of_queries ? pair.tile : pair.first;
                }));
  diagonals.add("tile-diagonal", sentence,
                in_tiles([](TileMask& mask, const auto&, const auto&) { mask.diagonal = 0; }));
  for (const auto& entry : diagonals.entries) table.add(entry.id, entry.sentence, entry.change, entry.when);
  return table;
}

/// Without the causal mask a tile is masked for keys that do not exist, and a diagonal may leave out others. Tiles are
/// those of a loop over queries, in which a variant of it forms dQ too, or of one over keys.
Table diagonals_without_causal() {
  Table table([](const GradientModel& m) { return m.tiled() && m.inputs->problem.mask.kind == Mask::none; });
  const auto add = [&](bool over_queries, bool is_0) {
    table.add(
        "diagonal-without-causal",
        "without the causal mask the tile whose last keys do not exist leaves out pairs of keys that do: the diagonal "
        "that it is masked with has to lie beyond all of them",
        [=](GradientModel& m) {
          m.sees = [=, right = m](Index i, Index j) {
            const bool owns_keys = over_queries;
            const Index keys = owns_keys ? right.owned : right.passing, first_key = round_down(j, keys);
            const Index first_query = round_down(i, owns_keys ? right.passing : right.owned);
            const Index diagonal = is_0 ? 0 : first_query + right.offset() - first_key;
            return right.sees(i, j) && (first_key + keys <= right.Nk() || j - first_key <= i - first_query + diagonal);
          };
        },
        [=](const GradientModel& m) { return over_queries || m.of_queries; });
  };
  for (const bool over_queries : {false, true})
    for (const bool is_0 : {false, true}) add(over_queries, is_0);
  return table;
}

/// The causal mask.
Table masks() {
  const auto mask = [](auto seen) {
    return [=](GradientModel& m) { m.sees = [=, right = m](Index i, Index j) { return seen(right, i, j); }; };
  };
  const auto unequal = [](const GradientModel& m) { return m.Nq() != m.Nk(); };
  const auto unequal_tiles = [](const GradientModel& m) { return m.tiled() && m.Nq() != m.Nk(); };
  Table table(&GradientModel::causal);
  table.add(
      "unseen-not-set",
      "P and dS are not set where a query does not see a key: both are 0 there, and are summed as all others",
      [](GradientModel& m) { m.unseen = judge::not_a_number; }, [](const GradientModel& m) { return !m.tiled(); });
  table.add("no-mask", "no key is masked: queries see keys that come after them",
            mask([](const GradientModel&, Index, Index) { return true; }));
  for (const bool every_tile : {true, false})
    table.add("tail-not-masked",
              "the score of a pair that does not count is 0, and P is exp(-LSE): the mask has to make P itself 0",
              [=](GradientModel& m) {
                m.changed = [right = m](Index, Index i, Index j, double score) { return right.sees(i, j) ? score : 0; };
                m.sees = [=, right = m](Index i, Index j) {
                  return every_tile || !right.tiled() || Pair(right, i, j).visited(right, right.offset());
                };
              });
  table.add("mask-one-more", "the causal mask is off by one: a query sees one key too many",
            mask([](const GradientModel& m, Index i, Index j) { return j <= i + m.offset() + 1; }));
  table.add("mask-one-fewer", "the causal mask is off by one: a query does not see its own key",
            mask([](const GradientModel& m, Index i, Index j) { return j < i + m.offset(); }));
  table.add("mask-top-left", "the causal mask is aligned top-left (j <= i), not bottom-right (j <= i + Nk - Nq)",
            mask([](const GradientModel&, Index i, Index j) { return j <= i; }), unequal);
  table.add("mask-top-left",
            "the causal mask within a tile is aligned top-left (j <= i), not bottom-right (j <= i + Nk - Nq)",
            mask([](const GradientModel& m, Index i, Index j) {
              const Pair pair(m, i, j);
              return pair.visited(m, m.offset()) && (!pair.masked(m, m.offset()) || j <= i);
            }),
            unequal_tiles);
  table.add("mask-sign",
            "the causal mask within a tile takes Nk - Nq with the wrong sign: query i sees the keys j <= i + Nk - Nq",
            mask([](const GradientModel& m, Index i, Index j) {
              const Pair pair(m, i, j);
              return pair.visited(m, m.offset()) && (!pair.masked(m, m.offset()) || j <= i - m.offset());
            }),
            unequal_tiles);
  table.add("mask-top-left",
            "tiles are skipped and masked as if query i saw the keys j <= i; it sees those with j <= i + Nk - Nq",
            mask([](const GradientModel& m, Index i, Index j) {
              const Pair pair(m, i, j);
              return pair.visited(m, 0) && (!pair.masked(m, 0) || j <= i + m.offset());
            }),
            unequal_tiles);
  const auto open_tiles = mask([](const GradientModel& m, Index i, Index j) {
    const Pair pair(m, i, j);
    return m.of_queries ? j <= pair.last + m.offset() : pair.visited(m, m.offset());
  });
  table.add("open-tiles", "tiles on the diagonal are not masked: every pair of a tile that passes by counts",
            open_tiles, [](const GradientModel& m) { return m.tiled() && m.of_values; });
  table.add("open-tiles",
            "tiles on the diagonal are not masked, neither P nor dS or dS alone: every pair of a tile that passes by "
            "counts",
            open_tiles, [](const GradientModel& m) { return m.tiled() && !m.of_values; });
  table.add("open-tiles",
            "tiles on the diagonal are not masked: dS of every pair of a tile that passes by the keys counts",
            mask([](const GradientModel& m, Index i, Index j) {
              return round_down(i, m.passing) + m.passing > round_down(j, m.owned) - m.offset();
            }),
            [](const GradientModel& m) { return m.tiled() && m.of_queries; });
  table.add("hidden-tiles", "tiles in which no query sees any key are computed, and not masked",
            mask([](const GradientModel& m, Index i, Index j) {
              return !Pair(m, i, j).visited(m, m.offset()) || j <= i + m.offset();
            }),
            &GradientModel::tiled);
  // No mask where one query of the block, or one key, would do without.
  const auto masked_too_little = mask([](const GradientModel& m, Index i, Index j) {
    const Pair pair(m, i, j);
    const bool masked = pair.crossed(m, m.of_queries ? pair.last : pair.first, m.offset());
    return pair.visited(m, m.offset()) && (!masked || j <= i + m.offset());
  });
  table.add("masked-too-little",
            "a tile that the diagonal crosses is not masked: it needs no mask only if the block's first query, which "
            "sees the fewest keys, sees all of it",
            masked_too_little, [](const GradientModel& m) { return m.tiled() && m.of_queries; });
  table.add("masked-too-little",
            "a tile that the diagonal crosses is not masked: it needs no mask only if the block's last key, which the "
            "fewest queries see, is seen by all of it",
            masked_too_little, [](const GradientModel& m) { return m.tiled() && !m.of_queries; });
  table.add("gradient-pairs-multiplied", pairs_multiplied, [](GradientModel& m) {
    multiply_uncounted(m, [right = m](Index i, Index j) {
      return !right.tiled() || Pair(right, i, j).visited(right, right.offset());
    });
  });
  table.add(
      "P-not-masked", "dS is masked, P is not: dV gets a part from queries that do not see the key",
      [](GradientModel& m) { m.masks_P = false; }, of_values);
  return table;
}

/// Which of the tiles that pass by count, and with which rows they are multiplied.
Table tiles() {
  // counts(tile of `other`, first and last tile that pass by)
  const auto only = [](auto counts) {
    return [=](GradientModel& m) {
      m.counts = [=, right = m](Index row, Index other) {
        const Index others = right.of_queries ? right.Nk() : right.Nq(), tile = right.passing;
        Index from = 0, until = others;
        if (right.causal()) {
          const Pair pair(right, row, row);
          if (right.of_queries)
            until = std::clamp<Index>(pair.last + 1 + right.offset(), 0, others);
          else
            from = std::max<Index>(0, pair.first - right.offset());
        }
        return counts(other / tile, from / tile, (until - 1) / tile);
      };
    };
  };
  Table table(&GradientModel::tiled);
  table.add("rows-mixed-up",
            "an element takes the LSE and the D of another query: of its row where the query is its column",
            [](GradientModel& m) { m.query_of = [](Index i, Index j) { return round_down(i, 16) + j % 16; }; });
  table.add(
      "rows-of-first-half",
      "an element takes the LSE and the D of a query from the first half of the Q tile: the rows begin with that of "
      "the block's first query, and first_query is to be added",
      [](GradientModel& m) {
        m.query_of = [tile = m.passing](Index i, Index) { return round_down(i, tile) + i % 32; };
      },
      [](const GradientModel& m) { return m.tiled() && !m.of_queries && m.passing > 32; });
  table.add(
      "rows-of-first-16",
      "of each 32 queries the second 16 take the LSE and the D of the first 16: fragment (r, n) has the queries from "
      "first_query + 16 n on",
      [](GradientModel& m) { m.query_of = [](Index i, Index) { return round_down(i, 32) + i % 16; }; },
      [](const GradientModel& m) { return m.tiled() && !m.of_queries; });
  // What a lane has of a fragment (16, 16) begins with row or column i / 2 * 2 of the first eight, or row i of them.
  table.add(
      "D-of-the-first-element", "all elements that a lane has of a fragment take the D of the first one's query",
      [](GradientModel& m) {
        m.query_of_D = [of_queries = m.of_queries](Index i, Index) {
          return round_down(i, 16) + (of_queries ? i % 8 : i % 8 / 2 * 2);
        };
      },
      [](const GradientModel& m) { return m.tiled() && !m.of_values; });
  table.add(
      "lse-of-the-first-element", "all elements that a lane has of a fragment take the LSE of the first one's query",
      [](GradientModel& m) {
        m.query_of_D = m.query_of;
        m.query_of = [of_queries = m.of_queries](Index i, Index) {
          return round_down(i, 16) + (of_queries ? i % 8 : i % 8 / 2 * 2);
        };
      },
      &GradientModel::tiled);
  const auto first_half = [](const GradientModel& m) {
    return [tile = m.passing](Index row, Index column) {
      return GradientModel::Place{round_down(row, tile) + row % 32, column};
    };
  };
  const auto halves = [](const GradientModel& m) { return m.tiled() && m.passing > 32; };
  table.add(
      "dP-of-first-half", "dP of the first half of the tile stands for all of it",
      [=](GradientModel& m) { (m.of_queries ? m.of_keys_in_dP : m.of_queries_in_dP) = first_half(m); },
      [=](const GradientModel& m) { return halves(m) && !m.of_values; });
  table.add(
      "S-of-first-half", "S of the first half of the tile stands for all of it",
      [=](GradientModel& m) {
        const auto right = [](Index row, Index column) { return GradientModel::Place{row, column}; };
        (m.of_queries ? m.of_keys_in_scores : m.of_queries_in_scores) = first_half(m);
        (m.of_queries ? m.of_keys_in_dP : m.of_queries_in_dP) = right;
      },
      halves);
  table.add("last-tile-only", "only the last tile that passes by counts: the accumulators are cleared in each",
            only([](Index tile, Index, Index last) { return tile == last; }));
  table.add("first-tile-only", "only the first tile that passes by counts",
            only([](Index tile, Index first, Index) { return tile == first; }));
  table.add("first-tile-left-out", "the first tile that passes by is left out",
            only([](Index tile, Index first, Index) { return tile > first; }));
  table.add("last-tile-left-out", "the last tile that passes by is left out",
            only([](Index tile, Index, Index last) { return tile < last; }));
  table.add(
      "half-tile", "only the first half of each tile counts: the part of the team's second warp is missing",
      [](GradientModel& m) { m.counts = [tile = m.passing](Index, Index other) { return other % tile < tile / 2; }; });
  table.add(
      "same-columns-in-a-team", "all warps of a team form the first columns of {gradient}",
      [](GradientModel& m) {
        m.in_right = [half = m.d() / 2](Index row, Index column) { return GradientModel::Place{row, column % half}; };
      },
      [](const GradientModel& m) { return m.tiled() && (m.passing > 32 || m.d() == 128); });
  table.add("first-tile-again", "the product is taken with the first tile's rows, whichever tile P and dS are of",
            [](GradientModel& m) { m.right_row = [tile = m.passing](Index other) { return other % tile; }; });
  table.add("next-tile", "the product is taken with the tile that arrives next, not with the one that P and dS are of",
            [](GradientModel& m) { m.right_row = [tile = m.passing](Index other) { return other + tile; }; });
  return table;
}

/// Since where scores are far below 0 this and a wrong LSE both give NaN, the latter in dK and dV as well, this is
/// tried first.
Table tail() {
  Table table;
  table.add(
      "tail-not-masked",
      "keys behind the last one of a short tile count with a score of 0: they are not masked, or the mask multiplies "
      "the score instead of making P 0. That gives an infinite dS in fp16, and infinity times a row of zeros is NaN",
      [](GradientModel& m) {
        m.added = [right = m](Index head, Index i) {
          const float dS = right.dS(right.probability(head, i, 0, 0), 0, right.D(head, i));
          return double(right.rounded(dS)) * 0.0;
        };
      },
      [](const GradientModel& m) { return m.tiled() && m.of_queries && m.Nk() % m.passing != 0; });
  return table;
}

Table last() {
  const auto square = [](const GradientModel& m) { return m.Nq() == m.Nk(); };
  const auto rounds = [](const GradientModel& m) { return !m.of_values && m.rounds_P; };
  const auto transposed = [](GradientModel& m) { m.left_is_transposed = true; };
  // Of each tile pieces of this size have changed places with those across the diagonal.
  const auto in_each_tile = [](Index size) {
    return [=](GradientModel& m) {
      m.in_left = [=, side = m.owned](Index i, Index j, int) {
        const Index row = i % side / size * size, column = j % side / size * size;
        return GradientModel::Place{i - row + column, j - column + row};
      };
    };
  };
  Table table;
  table.add("not-transposed", "dQ is scale·dSᵀK: dS is transposed where it must not be", transposed,
            [=](const GradientModel& m) { return square(m) && m.of_queries; });
  table.add("not-transposed", "{gradient} is formed from {P}, not from its transpose: a row of it is a key", transposed,
            [=](const GradientModel& m) { return square(m) && !m.of_queries; });
  for (const Index size : {1, 16})
    table.add("transposed-in-tiles",
              "{P} is stored with row and column exchanged: a row of its tile belongs to what the block owns",
              in_each_tile(size), [](const GradientModel& m) { return m.tiled() && m.owned == m.passing; });
  table.add(
      "D-half", "D is rounded to {element}: where dP and D are close, their difference is lost",
      [](GradientModel& m) {
        m.D = [right = m](Index head, Index i) { return double(right.rounded(float(right.D(head, i)))); };
      },
      rounds);
  table.add(
      "dP-half", "dP is rounded to {element} before D is subtracted: where the two are close, their difference is lost",
      [](GradientModel& m) {
        m.dS = [rounded = m.rounded](float P, double dP, double D) { return float(P * (rounded(float(dP)) - D)); };
      },
      rounds);
  table.add_constant("all-zeros", "{gradient} is 0 everywhere", [](GradientModel& m) { m.factor = 0; });
  return table;
}

Table gradients() {
  Table table;
  for (const Table& part : {tail(), differences(), of_dV(), probabilities(), masks(), tile_masks(),
                            diagonals_without_causal(), tiles(), last()})
    table.add(part);
  return table;
}

// ---- 6.2, what the kernels need of each query ----

/// D of each row.
struct RowSums {
  Tensor<double> O, dO;
  std::function<double(Index row)> D = {};

  Tensor<double> result() const {
    Tensor<double> all({O.sizes[0], O.sizes[1], O.sizes[2], 1});
    for (std::size_t row = 0; row < all.values.size(); ++row) all.values[row] = D(Index(row));
    return all;
  }
};
judge::MistakeTable<RowSums> row_sums() {
  judge::MistakeTable<RowSums> table;
  const auto D = [](auto of) {
    return [=](RowSums& m) { m.D = [=, O = m.O, dO = m.dO](Index row) { return double(of(O, dO, row)); }; };
  };
  // Σ over every `stride`th column of rounded(dO·O).
  const auto products = [](const Tensor<double>& O, const Tensor<double>& dO, Index row, Index stride,
                           judge::Rounding rounding) {
    double result = 0;
    for (Index at = row * O.sizes[3]; at < (row + 1) * O.sizes[3]; at += stride) {
      const double product = O.values[std::size_t(at)] * dO.values[std::size_t(at)];
      result += rounding ? rounding(float(product)) : product;
    }
    return result;
  };
  table.add("D-of-dO", "D is rowsum(dO∘dO), not rowsum(dO∘O)",
            D([](const auto&, const auto& dO, Index row) { return sum(dO, dO, row, 1, dO.sizes[3]); }));
  table.add("D-of-O", "D is rowsum(O∘O), not rowsum(dO∘O)",
            D([](const auto& O, const auto&, Index row) { return sum(O, O, row, 1, O.sizes[3]); }));
  table.add("D-of-eight", "D holds the first eight products of a row: the lanes' sums are not added up",
            D([](const auto& O, const auto& dO, Index row) { return sum(O, dO, row, 1, 8); }));
  table.add("D-of-every-second-lane",
            "D holds the products of every second lane, eight columns each: the last step of the shuffles, between "
            "neighbours, is missing",
            D([](const auto& O, const auto& dO, Index row) {
              double result = 0;
              for (Index at = row * O.sizes[3]; at < (row + 1) * O.sizes[3]; ++at)
                if (at / 8 % 2 == 0) result += O.values[std::size_t(at)] * dO.values[std::size_t(at)];
              return result;
            }));
  table.add("D-of-half-a-row", "D holds the first half of a row's products: one step of the shuffles is missing",
            D([](const auto& O, const auto& dO, Index row) { return sum(O, dO, row, 1, O.sizes[3] / 2); }));
  table.add("D-of-warp", "D is the sum over all queries of a warp: the shuffles reach beyond the lanes of one query",
            D([](const auto& O, const auto& dO, Index row) { return sum_of_warp(O, dO, row); }));
  table.add("D-of-neighbours",
            "D is the sum over two neighbouring queries: the first step of the shuffles is d / 8, which is the number "
            "of lanes of a query and reaches those of the next one. Begin with half of it",
            D([](const auto& O, const auto& dO, Index row) {
              const Index first = round_down(row, 2), all = Index(O.values.size()) / O.sizes[3];
              return sum(O, dO, first, std::min<Index>(2, all - first), O.sizes[3]);
            }));
  table.add("D-even-columns", "D holds the products of the even columns only: a half2 has two",
            D([=](const auto& O, const auto& dO, Index row) { return products(O, dO, row, 2, nullptr); }));
  table.add("D-missing", "D is 0", D([](const auto&, const auto&, Index) { return 0; }));
  table.add("D-half", "D is rounded to fp16: where dP and D are close, their difference is lost",
            D([=](const auto& O, const auto& dO, Index row) {
              return judge::to_fp16(float(products(O, dO, row, 1, nullptr)));
            }));
  table.add("products-half", "the products are rounded to fp16 before they are added up",
            D([=](const auto& O, const auto& dO, Index row) { return products(O, dO, row, 1, judge::to_fp16); }));
  return table;
}

/// The LSE in units of log2, and +∞ for a row that sees nothing.
struct Log2LSE {
  Tensor<double> lse;
  std::function<double(double)> of = {};

  Tensor<double> result() const {
    Tensor<double> all = lse;
    for (double& x : all.values) x = of(x);
    return all;
  }
};
judge::MistakeTable<Log2LSE> log2_lses() {
  judge::MistakeTable<Log2LSE> table;
  const auto open = [](double x) { return x == -infinity ? double(infinity) : x; };
  table.add("masked-lse-kept",
            "a fully masked row keeps its LSE of -inf: exp2(S - (-inf)) is infinite, and P must be 0. Read it as +inf",
            [](Log2LSE& m) { m.of = [](double x) { return x * log2_e; }; });
  table.add("natural-lse", "the LSE is left a natural logarithm: exp2 needs it multiplied by log2(e)",
            [=](Log2LSE& m) { m.of = open; });
  table.add("lse-divided", "the LSE is multiplied by ln 2, not by log2(e)",
            [=](Log2LSE& m) { m.of = [=](double x) { return open(x * ln_2); }; });
  return table;
}

const judge::Declared declared(
    {.chapter = "06_backward",
     .uses = {"05_causal"},
     .gradients = gradients(),
     .parts = judge::ids_of(row_sums(), log2_lses()),
     .claimed = judge::words("late-copies dS-rows extra-memory heads-above-65535 heads-mixed masked-row "
                             "barriers begin-not-rounded mask-times-scale masked-too-much "
                             "narrow-access not-the-gradient order-dependent "
                             "rounded-twice tiles-not-skipped tiles-skipped uncoalesced"),
     .without_mutant = {
         {"exercise 6.2 gives what chapter 7 turns into this; a mutant of 6.2 cannot", judge::words("D-read-as-fp16")},
         {judge::one_of_a_kind, judge::words("lse-of-the-first-element S-of-first-half V-for-K "
                                             "dO-for-Q D-of-O all-zeros first-tile-again first-tile-only half-tile "
                                             "next-tile products-half scores-not-scaled")},
         {"gives what no mask at all gives, since dV takes no notice of dS", judge::words("P-not-masked")},
         {judge::one_claim_of_several,
          judge::words("extra-memory heads-mixed narrow-access order-dependent rounded-twice")}}});

}  // namespace

std::vector<judge::Mistake> D_mistakes(const Tensor<double>& O, const Tensor<double>& dO) {
  return judge::made<RowSums>(row_sums(), {O, dO}, &RowSums::result);
}
void multiply_uncounted(GradientModel& m, const std::function<bool(Index, Index)>& visited) {
  m.changed = [sees = m.sees, changed = m.changed, lse = m.lse](Index head, Index i, Index j, double score) {
    if (changed) score = changed(head, i, j, score);
    if (sees(i, j)) return score;
    const bool is_infinite = std::isinf(float(std::exp(score - lse(head, i))));
    return is_infinite ? double(judge::not_a_number) : -double(infinity);
  };
  m.sees = visited;
}
std::vector<judge::Mistake> log2_lse_mistakes(const Tensor<double>& lse) {
  return judge::made<Log2LSE>(log2_lses(), {lse}, &Log2LSE::result);
}

}  // namespace workbook::test::ch06
