// What goes wrong in attention tile by tile, in the running state, and in the merge of two.
#include "tests/02_online_softmax/mistakes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>

namespace workbook::test::ch02 {
namespace {

using ch01::Attention;
using judge::Index, judge::infinity, judge::not_a_number, judge::Range, judge::round_down, judge::Row;
using Table = ch01::AttentionTable;

bool ragged(const Attention& m) {
  return m.Nk() % m.step != 0;
}

/// The first tile is there, and every other holds the one before it.
judge::Place tile_before(Index Bc) {
  return [=](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
    return Index(tensor.index(b, h, row < Bc ? row : row - Bc, column));
  };
}

/// The causal mask by tiles.
Table masks() {
  Table table([](const Attention& m) { return m.causal() && m.tiled(); });
  const auto mask = [](auto end) {
    return [=](Attention& m) { m.sees = [=, right = m](Index query) { return Range{0, end(right, query)}; }; };
  };
  table.add("mask-per-tile", "the mask counts queries from the beginning of their tile: it needs their row in Q",
            mask([](const Attention& m, Index i) { return m.visible(i % m.tiling.Br); }));
  table.add("mask-per-tile", "the mask takes the number of the tile's rows for Nq: it needs the head's",
            mask([](const Attention& m, Index i) {
              return visible_keys(i, m.last_of_tile(i) + 1 - round_down(i, m.tiling.Br), m.Nk(), true);
            }));
  table.add("mask-diagonal-tile-open", "tiles on the diagonal are not masked", mask([](const Attention& m, Index i) {
              return std::min(m.Nk(), judge::round_up(m.visible(m.last_of_tile(i)), m.tiling.Bc));
            }));
  table.add(
      "mask-diagonal-tile-dropped", "tiles on the diagonal are skipped instead of masked",
      mask([](const Attention& m, Index i) { return round_down(m.visible(round_down(i, m.tiling.Br)), m.tiling.Bc); }));
  return table;
}

/// A row that sees no key of a tile leaves S as it is.
Table scores_kept() {
  Table table([](const Attention& m) { return m.causal() && m.several_tiles(); });
  table.add("scores-of-the-tile-before",
            "a row that sees no key of a tile keeps the scores of the tile before, which count again: they must be −∞",
            [](Attention& m) {
              m.after_scores([right = m, kept = std::vector<float>()](Row& row) mutable {
                if (row.number == 0) kept.assign(std::size_t(right.step), 0);
                if (right.visible(row.query) <= row.first)
                  std::copy_n(kept.begin(), row.S.size(), row.S.begin());
                else
                  std::ranges::copy(row.S, kept.begin());
              });
            });
  return table;
}

/// Which keys enter.
Table keys() {
  const auto only = [](auto range) { return [=](Attention& m) { m.keys = range(m.Nk(), m.tiling.Bc); }; };
  const auto first_tile = [](Index rows_of_tile) {
    return [=](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
      return Index(tensor.index(b, h, row % rows_of_tile, column));
    };
  };
  // Tiles are Bc keys, whatever enters m, l and O at once.
  const auto tiles = [](const Attention& m) { return m.tiled() && m.Nk() > m.tiling.Bc; };
  Table table;
  table.add("ragged-tile-dropped", "the last, ragged K/V tile is left out: the number of tiles must be rounded up",
            only([](Index Nk, Index Bc) {
              return Range{0, round_down(Nk, Bc)};
            }),
            [=](const Attention& m) { return tiles(m) && m.Nk() % m.tiling.Bc != 0; });
  table.add("last-tile-dropped", "the last K/V tile is left out", only([](Index Nk, Index Bc) {
              return Range{0, round_down(Nk - 1, Bc)};
            }),
            tiles);
  table.add("first-tile-only", "only the first K/V tile is used", only([](Index, Index Bc) {
              return Range{0, Bc};
            }),
            tiles);
  table.add("first-tile-dropped", "the first K/V tile is left out", only([](Index Nk, Index Bc) {
              return Range{Bc, Nk};
            }),
            tiles);
  table.add("last-tile-only", "only the last K/V tile counts, what came before it is lost",
            only([](Index Nk, Index Bc) {
              return Range{round_down(Nk - 1, Bc), Nk};
            }),
            tiles);
  table.add(
      "padding-counted", "keys beyond Nk in the last, ragged tile count with a score of 0: their score must be −∞",
      [](Attention& m) { m.padding_score = 0; }, [](const Attention& m) { return m.tiled() && ragged(m); });
  table.add(
      "padding-in-maximum",
      "the maximum takes a score of 0 from keys beyond Nk in the last, ragged tile: their score must be −∞",
      [](Attention& m) {
        m.after_maximum([right = m](Row& row) {
          if (row.keys < right.step) right.raise(row, std::max(row.m_tile, 0.0F));
        });
      },
      [](const Attention& m) { return m.tiled() && ragged(m); });
  table.add(
      "one-key-too-many", "one key beyond Nk counts, with a score of 0: the last key is Nk - 1",
      [](Attention& m) {
        m.after_scores([](Row& row) {
          if (row.last) row.S.push_back(0);
        });
      },
      // Of a single key, a step that is counted again adds as much.
      [](const Attention& m) { return m.tiled() && ragged(m) && m.Nk() > 1; });
  table.add(
      "K-first-tile", "every step reads the first K tile", [=](Attention& m) { m.K = first_tile(m.tiling.Bc); }, tiles);
  table.add(
      "tile-of-the-step-before", "every step but the first multiplies with the K of the step before",
      [](Attention& m) { m.K = tile_before(m.tiling.Bc); }, tiles);
  table.add(
      "tile-of-the-step-before", "every step but the first takes K and V of the step before",
      [](Attention& m) { m.K = m.V = tile_before(m.tiling.Bc); }, tiles);
  for (const auto& [of_K, of_V, name] : {std::tuple{true, true, "K and V"}, {true, false, "K"}, {false, true, "V"}})
    table.add(
        "tiles-one-row-apart", fmt::format("tile j of {} begins at row j: it must be row j·Bc", name),
        [=, of_K = of_K, of_V = of_V](Attention& m) {
          const auto from_row_j = [Bc = m.tiling.Bc](const Tensor<float>& tensor, Index b, Index h, Index row,
                                                     Index column) {
            return Index(tensor.index(b, h, row / Bc + row % Bc, column));
          };
          if (of_K) m.K = from_row_j;
          if (of_V) m.V = from_row_j;
        },
        tiles);
  table.add(
      "Q-first-tile", "every Q tile reads the rows of the first one",
      [=](Attention& m) { m.Q = first_tile(m.tiling.Br); },
      [](const Attention& m) { return m.tiling.Br > 0 && m.Nq() > m.tiling.Br; });
  return table;
}

/// O from tile to tile.
Table outputs() {
  Table table(&Attention::several_tiles);
  table.add("O-not-rescaled", "O is not rescaled when a later K/V tile raises the maximum",
            [](Attention& m) { m.after_factors([](Row& row) { row.O_factor = 1; }); });
  table.add("last-rescale-forgotten", "O is not rescaled for the last tile, whose maximum may be higher",
            [](Attention& m) {
              m.after_factors([](Row& row) {
                if (row.last) row.O_factor = 1;
              });
            });
  table.add("O-rescale-wrong-sign", "O's rescale factor is upside down: exp(m_new − m_old), not exp(m_old − m_new)",
            [](Attention& m) {
              m.after_factors([right = m](Row& row) {
                row.O_factor = row.m_old == -infinity ? 1 : right.exponential(right.safe(row.m) - row.m_old);
              });
            });
  for (const bool last_alone : {false, true})
    table.add("O-rescaled-twice", "O is multiplied by the factor of a tile twice: once, before its PV is added",
              [=](Attention& m) {
                m.after_factors([=](Row& row) {
                  if (row.last || !last_alone) row.O_factor *= row.O_factor;
                });
              });
  for (const int too_often : {0, 1})
    table.add("O-rescaled-for-each-key", "O is rescaled for each key of a tile: once for all of them",
              [=](Attention& m) {
                m.after_weights([=](Row& row) {
                  float factor = 1;
                  for (std::size_t j = row.weights.size(); j-- > 0; factor *= row.O_factor) row.weights[j] *= factor;
                  row.O_factor = factor * (too_often ? row.O_factor : 1);
                });
              });
  table.add("O-overwritten", "each tile's PV overwrites O instead of adding to it",
            [](Attention& m) { m.after_factors([](Row& row) { row.O_factor = 0; }); });
  for (const int at_the_end : {0, 1})
    table.add("divided-every-tile",
              at_the_end == 0 ? "O is divided by l after every tile, not once at the end"
                              : "O is divided by l after every tile, and once more at the end",
              [=](Attention& m) {
                m.divisions = at_the_end;
                m.after_step([right = m](Row& row) {
                  for (float& x : row.O) x = right.divided(x, row.l);
                });
              });
  table.add("divided-by-last-tile", "O is divided by the sum of the last tile, not by l", [](Attention& m) {
    m.divisions = 0;
    m.after_last([right = m](Row& row) {
      for (float& x : row.O) x = right.divided(x, row.sum);
    });
  });
  table.add("tile-of-the-step-before", "every step but the first multiplies with the V of the step before",
            [](Attention& m) { m.V = tile_before(m.tiling.Bc); });
  table.add("V-first-tile", "every step reads the first V tile", [](Attention& m) {
    m.V = [Bc = m.tiling.Bc](const Tensor<float>& V, Index b, Index h, Index row, Index column) {
      return Index(V.index(b, h, row % Bc, column));
    };
  });
  return table;
}

/// Where a row has seen no key yet, of 2.1 and 2.3.
Table first_maxima() {
  Table table(&Attention::tiled);
  table.add("m-safe-of-the-old",
            "0 is subtracted wherever the old m is −∞, also in the {tile} that brings a row its first maximum: it "
            "belongs only where the new m is −∞",
            [](Attention& m) {
              m.after_maximum([](Row& row) {
                if (row.m_old == -infinity) row.subtracted = 0;
              });
            });
  return table;
}

Table no_rescaling() {
  Table table(&Attention::several_tiles);
  table.add("not-rescaled", "neither l nor O is rescaled when a later K/V tile raises the maximum",
            [](Attention& m) { m.after_factors([](Row& row) { row.l_factor = row.O_factor = 1; }); });
  return table;
}

/// In the first tile too: its factor is 0.
Table late_rescaling() {
  Table table(&Attention::tiled);
  for (const bool last_alone : {false, true})
    table.add("O-rescaled-too-late",
              last_alone ? "for the last tile O is rescaled after its PV has been added, not before"
                         : "O is rescaled after the new tile's PV has been added, not before",
              [=](Attention& m) {
                m.after_weights([=](Row& row) {
                  if (row.last || !last_alone)
                    for (float& x : row.weights) x *= row.O_factor;
                });
              });
  return table;
}

Table several_tiles(const Table& all) {
  Table table(&Attention::several_tiles);
  table.add(all);
  return table;
}

Table running() {
  return several_tiles(ch01::running());
}

/// Q tiles that are left unwritten.
Table unwritten() {
  const auto rows = [](auto end) { return [=](Attention& m) { m.rows.to = end(m.Nq(), m.tiling.Br); }; };
  Table table([](const Attention& m) { return m.tiling.Br > 0 && m.Nq() > m.tiling.Br; });
  table.add("ragged-Q-tile-not-written", "the last, ragged Q tile is never written",
            rows([](Index Nq, Index Br) { return round_down(Nq, Br); }),
            [](const Attention& m) { return m.Nq() % m.tiling.Br != 0; });
  table.add("last-Q-tile-not-written", "the last Q tile is never written",
            rows([](Index Nq, Index Br) { return round_down(Nq - 1, Br); }));
  table.add("first-Q-tile-only", "only the first Q tile is written", rows([](Index, Index Br) { return Br; }));
  return table;
}

// ---- 2.1, m and l in blocks ----

constexpr const char* m_safe_kept =
    "m becomes 0 where there is no score but −∞: 0 is what exp takes instead of it, m itself stays −∞";

Table blocks() {
  const auto several = [](const Attention& m) { return m.Nk() > m.step; };
  const auto only = [](auto range) { return [=](Attention& m) { m.keys = range(m.Nk(), m.step); }; };
  const auto begins_masked = [=](const Attention& m) {
    return several(m) && std::ranges::all_of(std::span(m.given_S->values).first(std::size_t(m.step)),
                                             [](float s) { return s == -infinity; });
  };
  Table table;
  table.add("m-safe-kept", m_safe_kept,
            [](Attention& m) { m.after_step([](Row& row) { row.m = row.m == -infinity ? 0 : row.m; }); });
  table.add("ragged-block-dropped", "the last, ragged block is left out: the number of blocks must be rounded up",
            only([](Index n, Index block) {
              return Range{0, round_down(n, block)};
            }),
            [=](const Attention& m) { return several(m) && ragged(m); });
  table.add("last-block-dropped", "the last block is left out", only([](Index n, Index block) {
              return Range{0, round_down(n - 1, block)};
            }),
            several);
  const auto first_block = only([](Index, Index block) { return Range{0, block}; });
  table.add("first-block-only", "only the first block is used", first_block,
            [=](const Attention& m) { return several(m) && !begins_masked(m); });
  table.add("ends-at-masked-block", "a block of nothing but −∞ ends the row: blocks behind it may have scores",
            first_block, begins_masked);
  table.add("first-block-dropped", "the first block is left out", only([](Index n, Index block) {
              return Range{block, n};
            }),
            several);
  table.add("last-block-only", "only the last block counts, what came before it is lost",
            only([](Index n, Index block) {
              return Range{round_down(n - 1, block), n};
            }),
            several);
  table.add("last-key-dropped", "the last score is left out", [](Attention& m) { m.keys.to -= 1; });
  table.add("first-key-dropped", "the first score is left out", [](Attention& m) { m.keys.from = 1; });
  table.add(
      "padding-counted", "places beyond the end of the last, ragged block count as scores of 0",
      [](Attention& m) { m.padding_score = 0; }, ragged);
  return table;
}
Table states() {
  Table table;
  for (const float finite : {-1e9F, -1e30F, std::numeric_limits<float>::lowest()})
    table.add("m-starts-at-1e9", "m starts at a large finite number instead of −∞",
              [=](Attention& m) { m.first_m = finite; });
  table.add("no-max-subtraction", "the row maximum is not subtracted before exp",
            [](Attention& m) { m.after_last([](Row& row) { row.l *= std::exp(row.m); }); });
  table.add("lse-for-l", "l holds its logarithm: it must be the sum itself",
            [](Attention& m) { m.after_last([](Row& row) { row.l = std::log(row.l); }); });
  table.add("m-and-l-swapped", "m and l are swapped",
            [](Attention& m) { m.after_last([](Row& row) { std::swap(row.m, row.l); }); });
  table.add("all-zeros", "every element is 0", [](Attention& m) { m.after_last([](Row& row) { row.m = row.l = 0; }); });
  table.add("not-written", "nothing was written, or only added to what was there",
            [](Attention& m) { m.after_last([](Row& row) { row.m = row.l = judge::unwritten_value; }); });
  // Where the first block is not exempt from a factor that is upside down, l is NaN.
  table.add(
      "rescale-wrong-sign", "the rescale factor is upside down: exp(m_new − m_old), not exp(m_old − m_new)",
      [](Attention& m) {
        m.after_factors([right = m](Row& row) { row.l_factor = right.exponential(right.safe(row.m) - row.m_old); });
      },
      &Attention::several_tiles);
  return table;
}

// ---- 2.2, two states into one ----

/// (m, l, O) of two states, and with which weights they are merged.
struct Merge {
  std::array<double, 2> m, l;
  std::vector<double> O;  ///< (2, d)
  double m_merged;
  std::array<double, 2> l_weights, O_weights;
  bool divided = false;  ///< O by l
  bool written = true;

  Merge(std::span<const float> m_, std::span<const float> l_, std::span<const float> O_)
      : m{m_[0], m_[1]}, l{l_[0], l_[1]}, O(O_.begin(), O_.end()) {
    relate_to(std::max(m[0], m[1]));
  }
  /// State k counts with exp(m_k − reference).
  void relate_to(double reference) {
    m_merged = reference;
    for (std::size_t k = 0; k < 2; ++k)
      l_weights[k] = m[k] == -infinity ? 0 : std::exp(m[k] - (reference == -infinity ? 0 : reference));
    O_weights = l_weights;
  }
  bool empty() const { return m[0] == -infinity && m[1] == -infinity; }
  bool one_empty() const { return m[0] == -infinity || m[1] == -infinity; }

  Tensor<double> merged() const {
    const std::size_t d = O.size() / 2;
    Tensor<double> result({1, 1, 1, Index(2 + d)}, judge::unwritten_value);
    if (!written) return result;
    result.values[0] = m_merged;
    const double sum = result.values[1] = l_weights[0] * l[0] + l_weights[1] * l[1];
    for (std::size_t c = 0; c < d; ++c)
      result.values[2 + c] = (O_weights[0] * O[c] + O_weights[1] * O[d + c]) / (divided ? sum : 1);
    return result;
  }
};

judge::MistakeTable<Merge> merges() {
  judge::MistakeTable<Merge> table;
  const auto weights = [](auto of) { return [=](Merge& s) { s.l_weights = s.O_weights = of(s.l_weights); }; };
  using Two = std::array<double, 2>;
  // First: with two empty states, factors that are upside down give the same NaN, and are less likely.
  table.add(
      "merge-empty-nan", "merging two empty states computes −∞ − (−∞), which is NaN: subtract 0 where m is −∞",
      [](Merge& s) {
        s.l_weights = s.O_weights = {not_a_number, not_a_number};
      },
      &Merge::empty);
  table.add(
      "m-safe-kept", m_safe_kept, [](Merge& s) { s.m_merged = 0; }, &Merge::empty);
  table.add("merge-adds-without-rescaling",
            "l and O of the two states are added without rescaling them to the new maximum", weights([](Two) {
              return Two{1, 1};
            }));
  table.add("merge-l-not-rescaled", "l of the two states is added without rescaling it to the new maximum",
            [](Merge& s) {
              s.l_weights = {1, 1};
            });
  table.add("merge-O-not-rescaled", "O of the two states is added without rescaling it to the new maximum",
            [](Merge& s) {
              s.O_weights = {1, 1};
            });
  table.add("merge-first-not-rescaled", "the first state is not rescaled to the new maximum", weights([](Two w) {
              return Two{1, w[1]};
            }));
  table.add("merge-second-not-rescaled", "the second state is not rescaled to the new maximum", weights([](Two w) {
              return Two{w[0], 1};
            }));
  table.add("merge-one-factor", "l of both states is multiplied by the first one's factor: each has its own",
            [](Merge& s) { s.l_weights[1] = s.l_weights[0]; });
  table.add("merge-one-factor", "both states are multiplied by the first one's factor: each has its own",
            weights([](Two w) {
              return Two{w[0], w[0]};
            }));
  table.add("merge-wrong-sign", "the rescale factors are upside down: exp(m − m_k), not exp(m_k − m)",
            weights([](Two w) {
              return Two{1 / w[0], 1 / w[1]};
            }));
  table.add("merge-swapped", "the two rescale factors are swapped", weights([](Two w) { return Two{w[1], w[0]}; }));
  table.add("merge-swapped", "the two rescale factors of O are swapped",
            [](Merge& s) { std::swap(s.O_weights[0], s.O_weights[1]); });
  table.add("merge-ignores-first-max", "the new maximum ignores the first state's: it is the second's",
            [](Merge& s) { s.relate_to(s.m[1]); });
  table.add("merge-ignores-second-max", "the new maximum ignores the second state's: it is the first's",
            [](Merge& s) { s.relate_to(s.m[0]); });
  table.add("merge-smaller-maximum", "the new maximum is the smaller of the two states': it must be the larger",
            [](Merge& s) { s.relate_to(std::min(s.m[0], s.m[1])); });
  const auto first_alone = [](Merge& s) { s.m_merged = s.m[0], s.l_weights = s.O_weights = {1, 0}; };
  const auto second_alone = [](Merge& s) { s.m_merged = s.m[1], s.l_weights = s.O_weights = {0, 1}; };
  table.add("merge-first-only", "the merged state is the first one: the second is lost", first_alone,
            std::not_fn(&Merge::one_empty));
  table.add("merge-first-only", "where the first state is empty, the merged one is empty too: it must be the second",
            first_alone, &Merge::one_empty);
  table.add("merge-second-only", "the merged state is the second one: the first is lost", second_alone,
            std::not_fn(&Merge::one_empty));
  table.add("merge-second-only", "where the second state is empty, the merged one is empty too: it must be the first",
            second_alone, &Merge::one_empty);
  for (const std::size_t empty : {0, 1})
    table.add(
        "merge-guard-of-one",
        empty == 0 ? "0 is subtracted where the first state is empty: it is for a new maximum of −∞, where both are"
                   : "0 is subtracted where the second state is empty: it is for a new maximum of −∞, where both are",
        [=](Merge& s) {
          const std::size_t other = 1 - empty;
          if (s.m[empty] == -infinity) s.l_weights[other] = s.O_weights[other] = std::exp(s.m[other]);
        },
        [](const Merge& s) { return s.one_empty() && !s.empty(); });
  table.add("merge-m-not-kept", "l and O are merged, but m stays the first state's",
            [](Merge& s) { s.m_merged = s.m[0]; });
  table.add("merge-first-lost", "m is right, but l and O hold only the second state's", weights([](Two w) {
              return Two{0, w[1]};
            }));
  table.add("merge-second-lost", "m is right, but l and O hold only the first state's", weights([](Two w) {
              return Two{w[0], 0};
            }));
  table.add("merge-normalised", "O is divided by l: the merged O must stay undivided, as the two states are",
            [](Merge& s) { s.divided = true; });
  table.add("merge-weighted-by-l", "O is weighted with l as if the two states were divided by it: they are not",
            [](Merge& s) {
              s.O_weights = {s.O_weights[0] * s.l[0], s.O_weights[1] * s.l[1]};
            });
  table.add("all-zeros", "every element is 0", [](Merge& s) { s.m_merged = 0, s.l_weights = s.O_weights = {0, 0}; });
  table.add("not-written", "nothing was written, or only added to what was there", [](Merge& s) { s.written = false; });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "02_online_softmax",
     .uses = {"01_naive_attention"},
     .attention = {{judge::Turn::mask, in_both, ch01::in_all_tiles(masks())},
                   {judge::Turn::mask, in_both, ch01::in_right_tiles(ch01::masks())},
                   {judge::Turn::mask, in_both, ch01::in_right_tiles(masks())},
                   {judge::Turn::mask, in_both, ch01::in_all_tiles(scores_kept())},
                   {judge::Turn::softmax, in_both, ch01::in_each_visit(ch01::softmaxes(), {"masked-row-nan"})},
                   {judge::Turn::keys, in_both, keys()},
                   {judge::Turn::tiles, in_both,
                    ch01::in_each_visit(running(), {"l-overwritten", "tile-maximum", "m-not-kept"})},
                   {judge::Turn::tiles, in_both, running()},
                   {judge::Turn::tiles, in_both, first_maxima()},
                   {judge::Turn::output, in_O,
                    ch01::in_each_visit(ch01::divisions(), {"masked-row-divided", "m-starts-at-1e9"})},
                   {judge::Turn::tiles, in_O,
                    ch01::in_each_visit(outputs(), {"O-overwritten", "divided-every-tile", "divided-by-last-tile"})},
                   {judge::Turn::tiles, in_both, no_rescaling()},
                   {judge::Turn::tiles, in_O, outputs()},
                   {judge::Turn::tiles, in_O, late_rescaling()},
                   {judge::Turn::unwritten_tiles, in_both, unwritten()}},
     .parts = judge::ids_of(blocks(), states(), merges()),
     .claimed = judge::words("extra-memory"),
     .without_mutant = {{"gives what m-starts-at-0 gives where the last tile is short, and is said beside it",
                         judge::words("padding-in-maximum")},
                        {judge::given_code, judge::words("K-first-tile Q-first-tile first-Q-tile-only "
                                                         "last-Q-tile-not-written ragged-Q-tile-not-written")},
                        {judge::one_of_a_kind,
                         judge::words("O-rescale-wrong-sign divided-by-last-tile "
                                      "first-block-dropped first-block-only first-key-dropped first-tile-dropped "
                                      "last-block-dropped last-block-only "
                                      "lse-for-l m-and-l-swapped mask-diagonal-tile-dropped "
                                      "merge-first-lost "
                                      "merge-normalised merge-second-lost merge-second-not-rescaled "
                                      "merge-second-only merge-weighted-by-l merge-wrong-sign")}}});

}  // namespace

std::vector<judge::Mistake> state_mistakes(std::span<const float> x, Index block) {
  Tensor<float> S({1, 1, 1, Index(x.size())});
  std::ranges::copy(x, S.values.begin());
  Attention in_blocks(S, block);
  in_blocks.words["{tile}"] = "block";
  const auto state = [](const Attention& m) {
    const Row row = m.attend({}, 0);
    Tensor<double> result({1, 1, 1, 2});
    result.values = {row.m, row.l};
    return result;
  };
  std::vector<judge::Mistake> mistakes;
  for (const Table& table : {running(), first_maxima(), blocks(), ch01::softmaxes(), ch01::finite_starts(), states()})
    judge::make<Attention>(mistakes, table, in_blocks, state);
  for (judge::Mistake& mistake : mistakes)
    if (mistake.id == "masked-row-nan")
      mistake.sentence = "where every score so far is −∞, −∞ − (−∞) is computed, which is NaN: subtract 0 there";
  return mistakes;
}

std::vector<judge::Mistake> merge_mistakes(std::span<const float> m, std::span<const float> l,
                                           std::span<const float> O) {
  return judge::made<Merge>(merges(), Merge(m, l, O), &Merge::merged);
}

}  // namespace workbook::test::ch02
