// Chapter 7 makes the mistakes of chapters 5 and 6 in bf16; its own are found by its tests.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/judge/mistakes.hpp"

namespace workbook::test {
namespace {

using judge::AttentionModel, judge::Index, judge::Row;

/// The blank page, whose design nobody knows: `sharers` lanes, or warps, share a row, and take its keys in runs by
/// turns. What each scales P with is then its own, and the first one writes the LSE. Of a single tile: with more of
/// them it matters which columns of O are whose.
void add_maximum(judge::MistakeTable<AttentionModel>& table, Index run, Index sharers) {
  table.add("maximum-not-shared",
            "the lanes, or warps, that share a row take a maximum each, of their own keys: it must be that of the row",
            [=](AttentionModel& m) {
              const auto maximum = [=](const Row& row, Index sharer) {
                float largest = -judge::infinity;
                for (Index j = 0; j < row.keys; ++j)
                  if (j / run % sharers == sharer) largest = std::max(largest, row.S[std::size_t(j)]);
                return largest;
              };
              m.after_probabilities([=, model = m](Row& row) {
                std::vector<float> maxima;
                for (Index sharer = 0; sharer < sharers; ++sharer) maxima.push_back(model.safe(maximum(row, sharer)));
                for (Index j = 0; j < row.keys; ++j)
                  row.P[std::size_t(j)] = std::exp(row.S[std::size_t(j)] - maxima[std::size_t(j / run % sharers)]);
              });
              m.after_last([=](Row& row) { row.m = maximum(row, 0); });
            });
}
judge::MistakeTable<AttentionModel> maxima() {
  judge::MistakeTable<AttentionModel> table([](const AttentionModel& m) { return !m.tiled() && m.Nk() <= 64; });
  for (const Index run : {1, 2, 4, 8, 16, 32})
    for (Index sharers = 2; run * sharers <= 64; sharers *= 2) add_maximum(table, run, sharers);
  return table;
}

/// How many keys a tile has is not known either, nor how many lanes share a row.
judge::MistakeTable<AttentionModel> sums() {
  judge::MistakeTable<AttentionModel> table([](const AttentionModel& m) { return !m.tiled(); });
  for (const Index tile : {32, 64, 128})
    for (const Index sharers : {2, 4, 8, 16, 32})
      table.add(
          "l-summed-again",
          "with each tile of keys l itself is summed over the lanes that share a row, and what it held is then counted "
          "once for each of them: sum what is new alone, or all of it once, behind the last tile",
          [=](AttentionModel& m) {
            m.tiling.Bc = m.step = tile;
            m.after_factors([=](Row& row) { row.l_factor *= float(sharers); });
          },
          [=](const AttentionModel& m) { return m.Nk() > tile; });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "07_mixed_precision",
     .uses = {"06_backward"},
     .attention = {{judge::Turn::softmax, in_both, maxima()}, {judge::Turn::softmax, in_both, sums()}},
     .claimed = judge::words(
         "atomic-per-lane atomic-per-turn backoff-grows barriers chance-upside-down extra-memory flag-ignored "
         "half-a-step-too "
         "momentum-is-a-mean momentum-not-kept "
         "momentum-one-step-old negative-not-by-chance rate-in-momentum no-momentum not-by-chance random-bits-above "
         "random-bits-missing "
         "random-upper-half "
         "tail-not-updated "
         "uncoalesced  "
         "backoff-missing checked-before-unscaling "
         "copy-before-update copy-rounds-toward-zero counter-kept-after-growth "
         "counter-not-reset decode-bias decode-e4m3-infinity decode-infinity "
         "decode-nan decode-subnormal e4m3-infinity e4m3-largest false-alarm "
         "falls-to-zero flag-overwritten found-forgotten fp16-code grows-every-step "
         "grows-to-infinity grows-too-early grows-too-late high-twice "
         "infinity-becomes-nan infinity-not-saturated later-blocks-not-checked loss-not-scaled low-twice "
         "master-in-fp16 nan-becomes-number nan-counts-as-finite narrow-access "
         "never-reported never-saturates never-taken no-learning-rate not-unscaled one-lane-checked one-warp-reports "
         "only-some-checked overflow-in-fp16 pair-swapped read-as-fp16 returns-wrong "
         "rounds-toward-zero saturates-always scale-multiplied sign-lost "
         "step-on-non-finite subnormals-flushed tail-not-checked through-fp16 "
         "ties-away ties-even tiny-rounded-up gradient-of-a-neighbour ties-odd ties-toward-zero traffic "
         "underflow-in-fp16 "
         "unscaled-in-fp16 unscaled-twice update-sign weights-left-out"),
     .without_mutant = {
         {judge::one_claim_of_several,
          judge::words("decode-bias decode-infinity decode-nan false-alarm fp16-code "
                       "extra-memory grows-too-early high-twice narrow-access never-taken returns-wrong")}}});

}  // namespace
}  // namespace workbook::test
