// What goes wrong in the backward pass where a row of Sᵀ is a key, and its queries lie in parts of eight.
#include "tests/06_backward/mistakes.hpp"

#include "common/judge/gradient_model.hpp"
#include "common/judge/mistakes.hpp"

namespace workbook::test {
namespace {

using judge::GradientModel, judge::Index, judge::round_down;
using Table = judge::MistakeTable<GradientModel>;

Table gradients() {
  Table table(&GradientModel::tiled);
  return table;
}

const judge::Declared declared(
    {.chapter = "09_backward_registers",
     .uses = {"06_backward"},
     .gradients = gradients(),
     .claimed = judge::words("barriers dlse-added dlse-left-out extra-memory future-leaks masked-too-little "
                             "masked-too-much matrix-loads matrix-stores not-repeatable order-dependent products "
                             "shared-traffic swizzle-conflicts tiles-not-skipped tiles-skipped traffic "
                             "turn-not-waited turn-without-syncwarp turns uncoalesced"),
     .without_mutant = {
         {judge::one_claim_of_several, judge::words("extra-memory future-leaks not-repeatable order-dependent products "
                                                    "shared-traffic")}}});

}  // namespace
}  // namespace workbook::test
