// What goes wrong where a row of S lies in the four lanes of a quad.
#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

const judge::Declared declared(
    {.chapter = "08_registers",
     .uses = {"05_causal"},
     .claimed = judge::words(
         "bank-conflicts barriers extra-memory matrix-loads narrow-access "
         "not-repeatable order-dependent places-order places-transposed products "
         "row-without-keys rows-mixed shared-traffic shuffles slack-ignored tail-not-zeroed traffic uncoalesced")});

}  // namespace
}  // namespace workbook::test
