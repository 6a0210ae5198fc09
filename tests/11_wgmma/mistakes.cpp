// What goes wrong where four warps multiply as one and O leaves by TMA; the scores and m of a row go wrong
// as in chapter 8.
#include <algorithm>
#include <vector>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::Index, judge::Row;
using Table = ch01::AttentionTable;

Table outputs() {
  Table table(&Attention::lanes_own_rows);
  table.add("V-first-section", "for d = 128 columns 64 to 127 of V are taken from its first section", [](Attention& m) {
    m.V = [](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
      return Index(tensor.index(b, h, row, column % 64));
    };
  });
  return table;
}

/// A consumer has 64 rows of the Br of a block.
Table queries() {
  Table table([](const Attention& m) { return m.lanes_own_rows() && m.tiling.Br > 64 && m.tiling.Br % 64 == 0; });
  table.add("Q-a-tile-apart",
            "the Q of consumer i is taken from Br·i rows further on: a consumer has 64 rows, Br are those of all",
            [](Attention& m) {
              m.Q = [Br = m.tiling.Br](const Tensor<float>& tensor, Index b, Index h, Index row,
                                       Index column) -> Index {
                const Index from = row % 64 + judge::round_down(row, Br) + row % Br / 64 * Br;
                return from < tensor.sizes[2] ? Index(tensor.index(b, h, from, column)) : -1;
              };
            });
  return table;
}

/// Where the last keys come first.
Table tiles() {
  Table table([](const Attention& m) { return m.several_tiles() && m.tiling.lane_rows.last_first; });
  table.add(
      "tiles-in-reverse",
      "tiles are brought in one order, and counted and masked in the other: both go from the last to the first",
      [](Attention& m) {
        m.K = m.V = [Bc = m.tiling.Bc, last = (m.Nk() - 1) / m.tiling.Bc](const Tensor<float>& tensor, Index b, Index h,
                                                                          Index row, Index column) -> Index {
          const Index from = (last - row / Bc) * Bc + row % Bc;
          return from < tensor.sizes[2] ? Index(tensor.index(b, h, from, column)) : -1;
        };
      },
      [](const Attention& m) { return m.unmasked(); });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "11_wgmma",
     .uses = {"08_registers"},
     .attention = {{judge::Turn::tiles, in_both, queries()},
                   {judge::Turn::tiles, in_both, tiles()},
                   {judge::Turn::lanes, in_O, outputs()}},
     .claimed = judge::words(
         "waits-early arrivals barriers columns-apart extra-memory order-dependent overlap places-one-warp "
         "places-order places-transposed row-without-keys rows-mixed shared-traffic slack-ignored "
         "stage-kept swizzle-conflicts tail-not-zeroed traffic turns waits wgmma-count"),
     .without_mutant = {{judge::one_of_a_kind, judge::words("places-order places-transposed V-first-section")},
                        {judge::one_claim_of_several,
                         judge::words("extra-memory order-dependent row-without-keys rows-mixed "
                                      "shared-traffic slack-ignored swizzle-conflicts tail-not-zeroed traffic")}}});

}  // namespace
}  // namespace workbook::test
