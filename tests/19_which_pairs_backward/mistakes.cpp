// What goes wrong where a block goes through the heads that share its keys, and a mask is seen from the side of the
// keys; the rest goes wrong as in chapters 13 and 15.
#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

const judge::Declared declared({.chapter = "19_which_pairs_backward",
                                .uses = {"13_backward_wgmma", "15_which_pairs"},
                                .claimed = judge::words("steps full pairs")});

}  // namespace
}  // namespace workbook::test
