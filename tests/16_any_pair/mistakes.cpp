// What goes wrong with masks that are any function of a pair.
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::GradientModel, judge::Index, judge::Range;

/// The blocks of a mask, each by all of its pairs.
class Blocks {
 public:
  Blocks(const Setting& setting, Index Br, Index Bc)
      : mask_(setting.mask), shape_(setting.shape), Br_(Br), Bc_(Bc), columns_((shape_.Nk + Bc - 1) / Bc) {
    seen_.resize(std::size_t((shape_.Nq + Br - 1) / Br * columns_));
    for (Index i = 0; i < shape_.Nq; ++i) mask_.for_keys(shape_, i, [&](Index j) { ++seen_[place(i, j)]; });
  }
  bool empty(Index i, Index j) const { return seen_[place(i, j)] == 0; }
  bool full(Index i, Index j) const {
    return seen_[place(i, j)] == Bc_ * (std::min(shape_.Nq, i / Br_ * Br_ + Br_) - i / Br_ * Br_);
  }
  bool sees(Index i, Index j) const { return i < shape_.Nq && j < shape_.Nk && mask_.sees(shape_, i, j); }
  Index Bc() const { return Bc_; }

 private:
  std::size_t place(Index i, Index j) const { return std::size_t(i / Br_ * columns_ + j / Bc_); }
  Mask mask_;
  Shape shape_;
  Index Br_, Bc_, columns_;
  std::vector<Index> seen_;
};

/// In partial blocks other pairs count than those that do: other(blocks, query, key).
using Other = bool (*)(const Blocks& blocks, Index i, Index j);
bool all(const Blocks&, Index, Index) {
  return true;
}
bool mirrored(const Blocks& blocks, Index i, Index j) {
  return blocks.sees(j, i);
}
bool opposite(const Blocks& blocks, Index i, Index j) {
  return !blocks.sees(i, j);
}
bool of_first_part(const Blocks& blocks, Index i, Index j) {
  return blocks.sees(i, j / blocks.Bc() * blocks.Bc() + j % 8);
}
bool none(const Blocks&, Index, Index) {
  return false;
}
auto in_blocks(const Setting& setting, Index Br, Index Bc, Other other) {
  return [=, blocks = std::make_shared<const Blocks>(setting, Br, Bc)](Index i, Index j) {
    return !blocks->empty(i, j) && (blocks->full(i, j) || other(*blocks, i, j));
  };
}
auto forward_with(Other other) {
  return [=](Attention& m) {
    m.sees = [](Index) { return Range{}; };
    m.counts = in_blocks(*m.problem, m.tiling.Br, m.tiling.Bc, other);
    m.goes_to = {};
  };
}
auto backward_with(Other other) {
  return [=](GradientModel& m) { m.sees = in_blocks(m.inputs->problem, m.passing, m.owned, other); };
}

const char *const not_asked = "every pair of a partial block counts", *const swapped = "query and key change places",
                  *const turned = "the pairs of a partial block count that do not, and those that do count do not";

ch01::AttentionTable pairs() {
  ch01::AttentionTable table([](const Attention& m) { return m.tiled() && m.problem->mask.kind > Mask::window; });
  table.add("pairs-not-asked", not_asked, forward_with(all));
  table.add("pairs-mirrored", swapped, forward_with(mirrored));
  table.add("pairs-opposite", turned, forward_with(opposite));
  table.add("pairs-of-first-part", "all parts of a tile are asked for the keys of the first one",
            forward_with(of_first_part));
  table.add("pairs-none", "no pair of a partial block counts", forward_with(none));
  table.add("pairs-zero", "pairs that do not count have the score 0: it is −∞", [](Attention& m) {
    forward_with(all)(m);
    m.changed = [given = m.problem](const judge::Head&, Index i, Index j, float score) {
      return given->mask.sees(given->shape, i, j) ? score : 0;
    };
  });
  return table;
}
judge::MistakeTable<GradientModel> gradients() {
  judge::MistakeTable<GradientModel> table(
      [](const GradientModel& m) { return m.tiled() && m.inputs->problem.mask.kind > Mask::window; });
  table.add("gradient-pairs-not-asked", not_asked, backward_with(all));
  table.add("gradient-pairs-mirrored", swapped, backward_with(mirrored));
  table.add("gradient-pairs-kept",
            "a pair that does not count keeps the product of its query and key in the place of P, or dP in that of dS: "
            "both must become 0",
            [](GradientModel& m) {
              backward_with(all)(m);
              constexpr double mark = 1e6;  // what a score is lowered by that does not count
              const auto counts = std::make_shared<bool>(true);
              m.changed = [given = m.inputs->problem](Index, Index i, Index j, double score) {
                return given.mask.sees(given.shape, i, j) ? score : score - mark;
              };
              m.P = [=, P = m.P, scale = m.score_scale](double score, double lse, double maximum) {
                *counts = score > -mark / 2;
                return *counts ? P(score, lse, maximum) : float((score + mark) / scale);
              };
              m.dS = [=, dS = m.dS](float P, double dP, double D) { return *counts ? dS(P, dP, D) : float(dP); };
            });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "16_any_pair",
     .uses = {"08_registers", "09_backward_registers"},
     .attention = {{judge::Turn::mask, in_both, pairs()}},
     .gradients = gradients(),
     .claimed = judge::words(
         "documents-not-causal documents-ignored own-key-left-out prefix-and-causal "
         "prefix-of-queries prefix-one-too-long prefix-without-causal prefix-ignored stride-width-plus-one "
         "stride-from-key-0 "
         "stride-not-causal stride-of-columns stride-once stride-swapped block-called-full block-called-empty "
         "block-called-partial "
         "list-count list-order list-places line-transposed line-places walk-of-lanes walk-not-renewed walk-of-full "
         "walk-of-the-first "
         "blocks-read blocks-asked index-bytes blocks-classed-again unseen-key-used turn-of-empty turn-of-full "
         "turn-from-1 turn-of-partial gradients-by-atomics traffic"),
     .without_mutant = {
         {judge::one_claim_of_several, judge::words("blocks-read blocks-asked blocks-classed-again unseen-key-used "
                                                    "gradients-by-atomics traffic")}}});

}  // namespace
}  // namespace workbook::test
