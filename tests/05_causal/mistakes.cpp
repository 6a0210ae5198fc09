// What goes wrong where tiles are skipped, and only those on the diagonal are masked.
#include <algorithm>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::Index, judge::infinity, judge::log2_e, judge::Range, judge::round_down, judge::round_up, judge::Row;
using Table = ch01::AttentionTable;

/// From the step with this key on, the warp of a query masks some keys.
Index first_masked(const Attention& m, Index query) {
  return round_down(m.visible(round_down(query, 32)), m.step);
}

Table masks() {
  const auto sees_up_to = [](auto end) {
    return [=](Attention& m) {
      m.sees = [=, right = m](Index query) { return Range{0, std::max(right.visible(query), end(right, query))}; };
    };
  };
  const auto in_masked_steps = [](auto change) {
    return [=](Attention& m) {
      m.after_scores([=, right = m](Row& row) {
        if (row.first >= first_masked(right, row.query)) change(right, row);
      });
    };
  };
  const auto scores_times = [=](auto factor) {
    return in_masked_steps([=](const Attention& right, Row& row) {
      for (float& x : row.S) x = x > -infinity ? x * factor(right) : x;
    });
  };
  Table lanes(&Attention::lanes_own_rows), all;
  lanes.add(
      "mask-where-whole-warp-needs-it",
      "keys are masked only where every row of the warp needs it: it must be where any row does",
      sees_up_to([](const Attention& m, Index i) { return round_down(m.visible(round_down(i, 32) + 31), m.step); }));
  lanes.add("mask-of-the-first-lane",
            "all rows of a warp are masked as its first one: each lane has a query of its own", [](Attention& m) {
              m.sees = [right = m](Index query) { return Range{0, right.visible(round_down(query, 32))}; };
            });
  lanes.add("reset-at-boundary", "m and l begin anew in every tile that is masked: what came before is lost",
            in_masked_steps([](const Attention&, Row& row) { row.m = -infinity, row.l = 0; }));
  lanes.add("masked-tiles-scaled-twice", "in tiles that are masked the scores are scaled twice",
            scores_times([](const Attention& m) { return m.problem->scale * log2_e; }));
  lanes.add("masked-tiles-not-scaled",
            "in tiles that are masked the scores are not scaled, neither by 1/√d nor by log2(e)",
            scores_times([](const Attention& m) { return judge::ln_2 / m.problem->scale; }));
  all.add(lanes);
  all.add("last-boundary-tile-only", "only the last tile of a Q tile is masked: the diagonal may cross several",
          sees_up_to(
              [](const Attention& m, Index i) { return round_down(m.visible(m.last_of_tile(i)) - 1, m.tiling.Bc); }));
  Table table([](const Attention& m) { return m.causal() && m.tiled(); });
  table.add(all);
  return table;
}

/// A query sees as many keys of each step of a tile as it sees from key `counted_from(step's first key)` on. The last
/// tile's steps go on beyond Nk, where a score is 0.
template <class From>
std::function<void(Attention&)> each_step_sees(From counted_from) {
  return [=](Attention& m) {
    m.after_scores([=, right = m](Row& row) {
      const Index seen = right.visible(row.query) - counted_from(right, row.first);
      const auto of_step = [&](Index first, Index j) {
        return j < seen ? right.score(*row.head, row.query, first + j) : -infinity;
      };
      row.S.clear();
      for (Index j = 0; j < right.step; ++j) row.S.push_back(of_step(row.first, j));
      if (row.first + right.step < right.Nk()) return;
      for (Index first = row.first + right.step; first < round_up(right.Nk(), right.tiling.Bc); first += right.step)
        for (Index j = 0; j < right.step; ++j) row.S.push_back(of_step(first, j));
    });
  };
}

Table masks_of_steps() {
  const char* const sentence =
      "what a query sees of a step is counted from the first key of its tile, or of all, on: it is to be counted from "
      "the step's first key on";
  Table table([](const Attention& m) { return (m.causal() || m.unmasked()) && m.tiled(); });
  table.add("step-taken-for-the-first", sentence, each_step_sees([](const Attention&, Index) { return Index(0); }));
  table.add("step-taken-for-the-first", sentence,
            each_step_sees([](const Attention& m, Index first) { return round_down(first, m.tiling.Bc); }),
            [](const Attention& m) { return m.step < m.tiling.Bc; });
  return table;
}

/// What a row that has seen no key is left with. It is last: O is NaN in the same rows where it is divided by l = 0.
Table rows_without_keys() {
  Table table([](const Attention& m) { return m.lanes_own_rows() && m.causal() && m.Nq() > m.Nk(); });
  table.add(
      "infinite-P",
      "a row that has seen no key yet gives −∞ or NaN to O, as its P or its factor: P must be 0, the factor finite",
      [](Attention& m) { m.safe_division = false; });
  return table;
}

/// Which tiles of keys a Q tile goes through. The mask is right.
Table ranges() {
  const auto goes_to = [](auto end) {
    return [=](Attention& m) { m.goes_to = [=, right = m](Index query) { return end(right, query); }; };
  };
  Table table([](const Attention& m) { return m.causal() && m.tiled(); });
  table.add("tile-range-top-left", "the range of tiles is aligned top left, j ≤ i: it must be j ≤ i + (Nk − Nq)",
            goes_to([](const Attention& m, Index i) { return std::min(m.last_of_tile(i) + 1, m.Nk()); }),
            [](const Attention& m) { return m.Nq() != m.Nk(); });
  table.add("tile-range-of-first-query", "a Q tile goes as far as its first query sees: its last one sees most",
            goes_to([](const Attention& m, Index i) { return m.visible(round_down(i, m.tiling.Br)); }));
  table.add("tile-range-one-key-short",
            "the range of tiles counts one key too few: the last query of a Q tile may be the only one to see a tile's "
            "first key",
            goes_to([](const Attention& m, Index i) { return m.visible(m.last_of_tile(i) - 1); }));
  table.add(
      "boundary-tile-left-out",
      "the last tile that a Q tile sees is left out if it sees it in part: the number of tiles must be rounded up",
      goes_to([](const Attention& m, Index i) { return round_down(m.visible(m.last_of_tile(i)), m.tiling.Bc); }));
  return table;
}

/// The same where there is no mask.
Table ranges_without_mask() {
  Table table([](const Attention& m) { return m.unmasked() && m.tiled(); });
  table.add(
      "range-without-mask",
      "without the mask too, a Q tile goes only as far as a mask would let it see: it must go through all keys",
      [](Attention& m) {
        m.goes_to = [right = m](Index query) {
          return std::clamp<Index>(right.last_of_tile(query) + right.Nk() - right.Nq() + 1, 0, right.Nk());
        };
      },
      [](const Attention& m) { return m.Nk() > m.Nq(); });
  table.add(
      "padding-counted-in-all-steps",
      "keys beyond Nk count with a score of 0, in all steps of the last tile: their score must be −∞",
      [](Attention& m) { m.padding_score = 0, m.step = m.tiling.Bc; },
      [](const Attention& m) { return m.Nk() % m.tiling.Bc != 0 && m.step < m.tiling.Bc; });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "05_causal",
     .uses = {"04_q_split"},
     .attention = {{judge::Turn::mask, in_both, ch01::in_all_tiles(masks())},
                   {judge::Turn::mask, in_both, ch01::in_right_tiles(masks())},
                   {judge::Turn::mask, in_both, ch01::in_all_tiles(masks_of_steps())},
                   {judge::Turn::mask, in_both, ch01::in_right_tiles(masks_of_steps())},
                   {judge::Turn::range, in_both, ranges()},
                   {judge::Turn::range, in_both, ranges_without_mask()},
                   {judge::Turn::lanes, in_O, rows_without_keys()}},
     .claimed = judge::words("late-copies barriers extra-memory future-tile-used heads-above-65535 heads-together "
                             "launch-order mask-below-diagonal masked-tiles order-dependent "
                             "row-without-keys slack-ignored tail-not-zeroed tiles-above-diagonal traffic"),
     .without_mutant = {{judge::one_claim_of_several,
                         judge::words("future-tile-used order-dependent row-without-keys tail-not-zeroed")}}});

}  // namespace
}  // namespace workbook::test
