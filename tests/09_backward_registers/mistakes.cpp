// What chapter 9's tests claim beside the mistakes of chapter 6, whose model of a gradient serves here too.
#include "common/judge/mistakes.hpp"

namespace workbook::test {
namespace {

const judge::Declared declared(
    {.chapter = "09_backward_registers",
     .uses = {"06_backward"},
     .claimed = judge::words("barriers dlse-added dlse-left-out extra-memory future-leaks masked-too-little "
                             "masked-too-much matrix-loads matrix-stores not-repeatable order-dependent products "
                             "shared-traffic swizzle-conflicts tiles-not-skipped tiles-skipped traffic "
                             "turn-not-waited turn-without-syncwarp turns uncoalesced"),
     .without_mutant = {{judge::one_claim_of_several,
                         judge::words("extra-memory future-leaks masked-too-little not-repeatable order-dependent "
                                      "products shared-traffic traffic turns")}}});

}  // namespace
}  // namespace workbook::test
