// What goes wrong where a block goes through the heads that share its keys, a mask is seen from the side of the keys, P
// is formed of changed scores, and rows of sequences are filled up; the rest goes wrong as in chapters 13 and 15.
#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

const judge::Declared declared(
    {.chapter = "19_which_pairs_backward",
     .uses = {"13_backward_wgmma", "15_which_pairs"},
     .claimed = judge::words(
         "walk-one-head walk-counted-from-0 walk-last-counted walk-never-empty walk-from-0 walk-same-head "
         "walk-heads-apart steps walk-last-left-out walk-one-behind walk-no-next-head walk-heads-first "
         "all-see-any all-see-keys-behind all-see-key-behind all-see-one-fewer all-see-one-more full-queries "
         "all-see-left-for-right all-see-diagonal all-see-queries-behind all-see-some-query all-see-one-end "
         "full-row-blocks of-keys-first-key of-keys-neighbours of-keys-exchanged of-keys-row-in-tile "
         "of-keys-behind of-keys-eight-keys of-keys-last-query of-keys-not-moved of-keys-from-the-row-block "
         "of-keys-moved-by-8 of-keys-one-end-moved pairs stays-the-product stays-the-derivative stays-the-score "
         "stays-times-the-product stays-rounded formed P-with-derivative stays-unmasked P-unmasked "
         "P-mask-inverted P-mask-one-end P-mask-one-more P-lse-exchanged P-of-the-product P-distance-of-one-pair "
         "P-distance-of-one-key P-distance-of-one-query P-distance-of-one-eight P-registers P-neighbours "
         "P-of-all-queries P-from-register-0 padded-first-sequence padded-heads-of-Nq padded-from-first-row "
         "padded-of-the-kv-head padded-first-head padded-without-heads padded-first-row-block padded-of-the-keys "
         "box-not-ended box-of-the-kv-head box-first-head box-first-sequence box-first-row-block box-without-Br "
         "box-of-the-keys padded-without-Br place-in-rows turn-place-tickets turn-place-in-rows "
         "turn-place-in-row-blocks turn-of-the-first-query turn-of-the-query-behind turn-of-the-key-behind "
         "turn-from-the-first turn-negative turn-of-all-keys turn-one-number turn-in-keys turn-in-row-blocks "
         "place-of-dQ")});

}  // namespace
}  // namespace workbook::test
