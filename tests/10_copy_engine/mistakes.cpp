// What goes wrong where tiles come through a ring: the simulator's reports name most of it. Numbers alone show which
// tile stood in another's place.
#include <memory>
#include <utility>
#include <vector>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::Index;

ch01::AttentionTable tiles() {
  ch01::AttentionTable table;
  table.add("K-V-exchanged", "tiles of V stand where tiles of K are expected, and the other way round",
            [](Attention& m) {
              Problem exchanged = *m.problem;
              std::swap(exchanged.K, exchanged.V);
              m.problem = std::make_shared<const Problem>(std::move(exchanged));
            });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "10_copy_engine",
     .uses = {"08_registers"},
     .attention = {{judge::Turn::tiles, in_both, tiles()}},
     .claimed = judge::words(
         "waits-early barriers box-not-swizzled boxes-moved chunks-in-place copies first-row-again extra-memory "
         "head-stride map-strides matrix-loads mbarriers not-reversed order-dependent outside-the-map row-without-keys "
         "rows-not-in-pairs "
         "runs-into-next-head "
         "shared-traffic stage-kept swizzle-conflicts tail-not-zeroed"),
     .without_mutant = {{judge::one_claim_of_several,
                         judge::words("copies extra-memory matrix-loads order-dependent row-without-keys "
                                      "runs-into-next-head shared-traffic swizzle-conflicts tail-not-zeroed")}}});

}  // namespace
}  // namespace workbook::test
