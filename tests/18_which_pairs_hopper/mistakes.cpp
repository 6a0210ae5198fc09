// What goes wrong where consumers see different tiles of keys, and boxes end with sequences; the rest goes wrong as in
// chapters 11 and 15.
#include "common/judge/mistakes.hpp"

namespace workbook::test {
namespace {

const judge::Declared declared(
    {.chapter = "18_which_pairs_hopper",
     .uses = {"11_wgmma", "15_which_pairs"},
     .claimed = judge::words(
         "full-rounded full-by-another-query full-as-needed full-query-behind full-in-keys "
         "mask-missing mask-without-left mask-without-right mask-key-behind mask-first-key mask-one-part "
         "mask-of-the-first-tile mask-of-the-first-queries mask-of-the-first-row mask-of-the-first-column "
         "mask-inverted mask-number "
         "rows-not-ended rows-of-the-first-head rows-from-the-beginning rows-of-the-first-sequence rows-N-too-far "
         "rows-from-0 "
         "work-first-tiles-first work-head-by-head work-full-groups work-all-heads work-mask-of-the-call "
         "work-tile-of-all work-rows-from-0 work-of-one-query work-key-tiles-from-0 work-all-key-tiles "
         "work-queries-behind work-without-end")});

}  // namespace
}  // namespace workbook::test
