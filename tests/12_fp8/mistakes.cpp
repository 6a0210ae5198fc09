// What goes wrong where numbers have 8 bits and a scale; the rest goes wrong as in chapter 11.
#include <algorithm>
#include <vector>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

const judge::Declared declared(
    {.chapter = "12_fp8",
     .uses = {"11_wgmma"},
     .claimed = judge::words(
         "accuracy barriers keys-in-order keys-inverse not-orthogonal offset-missing order-dependent "
         "outlier-not-spread row-without-keys rows-mixed scale-no-power scale-too-large "
         "scale-too-small score-error signs-forgotten steps-between-lanes tail-not-zeroed traffic "
         "turns uncoalesced waits wgmma-count")});

}  // namespace
}  // namespace workbook::test
