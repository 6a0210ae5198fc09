// What goes wrong where consumers see different tiles of keys, and boxes end with sequences; the rest goes wrong as in
// chapters 11 and 15.
#include <algorithm>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::Index, judge::Range, judge::round_down, judge::round_up;
using Table = ch01::AttentionTable;

/// The keys of the tiles that the queries from first to last - 1 need; none: an empty range at the beginning.
Range keys_of_tiles(const Attention& m, Index first, Index last) {
  const Index Bc = m.tiling.Bc, from = round_down(m.sees(first).from, Bc);
  return {from, std::max(from, round_up(m.sees(last - 1).to, Bc))};
}

/// A consumer masks its own tiles, and multiplies as many others: those of K and V that are there at another turn.
Table turns() {
  Table table([](const Attention& m) {
    return m.lanes_own_rows() && m.tiling.Br > 64 && m.tiling.Br % 64 == 0 && m.problem->mask.lengths.empty();
  });
  // by(keys behind its own, keys before its own): how much further the keys are that it multiplies.
  const auto shifted = [](Index (*by)(Index behind, Index before)) {
    return [=](Attention& m) {
      m.sees = [=, right = m](Index query) {
        const Index Br = right.tiling.Br, Nq = right.Nq(), first = round_down(query, 64);
        const Range own = keys_of_tiles(right, first, std::min(Nq, first + 64));
        const Range block = keys_of_tiles(right, round_down(query, Br), std::min(Nq, round_down(query, Br) + Br));
        const Index shift = by(block.to - own.to, own.from - block.from);
        const Range seen = right.sees(query);
        return Range{seen.from + shift, std::min(seen.to + shift, right.Nk())};
      };
      m.goes_to = {};
    };
  };
  table.add("passed-over-at-other-ends",
            "a consumer passes over as many tiles first as there are before its own, and then over those behind: the "
            "last tiles come first, so that it is the other way round",
            shifted([](Index behind, Index before) { return behind - before; }));
  table.add("passed-over-at-other-ends",
            "a consumer passes over the tiles at both ends before it attends: those before its own come after them",
            shifted([](Index, Index before) { return -before; }));
  table.add("passed-over-at-other-ends",
            "a consumer attends before it passes over any tile: those behind its own come before them",
            shifted([](Index behind, Index) { return behind; }));
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "18_which_pairs_hopper",
     .uses = {"11_wgmma", "15_which_pairs"},
     .attention = {{judge::Turn::tiles, in_both, turns()}},
     .claimed = judge::words(
         "full-rounded full-by-another-query full-as-needed full-query-behind full-in-keys "
         "mask-missing mask-without-left mask-without-right mask-one-key-more mask-one-key-fewer mask-one-part "
         "mask-eights-apart mask-end-by-eights "
         "mask-of-the-first-tile mask-of-the-first-queries mask-of-the-first-row mask-of-the-first-column "
         "mask-inverted mask-number "
         "rows-not-ended rows-of-the-first-head rows-from-the-beginning rows-of-the-first-sequence rows-N-too-far "
         "rows-of-short-heads rows-number-of-the-head rows-first-twice rows-exchanged rows-from-0 rows-at-their-place "
         "work-first-tiles-first work-head-by-head work-full-groups work-all-heads work-mask-of-the-call "
         "work-tile-of-a-full-group work-tile-of-all work-rows-from-0 work-of-one-query work-key-tiles-from-0 "
         "work-all-key-tiles "
         "work-heads-again work-exchanged work-group-for-head work-one-tile-on work-query-in-head work-without-end")});

}  // namespace
}  // namespace workbook::test
