// What goes wrong with masks that are ranges, and with changes of scores.
#include <algorithm>
#include <cmath>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::Index, judge::Range;
using Table = ch01::AttentionTable;

/// A window's range with other numbers: (diagonal, Nk, left, right) -> range.
template <class Other>
auto seen_as(Other other) {
  return [=](Attention& m) {
    m.sees = [other, mask = m.problem->mask, shape = m.problem->shape](Index query) {
      const Range keys = other(query, query + shape.Nk - shape.Nq, mask.left, mask.right, shape.Nk);
      return Range{std::max<Index>(0, keys.from), std::min(keys.to, shape.Nk)};
    };
    m.goes_to = {};
  };
}
Table windows() {
  Table table([](const Attention& m) { return m.problem->mask.kind == Mask::window; });
  table.add("window-top-left", "the window is aligned top left: query i stands at key i + (Nk − Nq)",
            seen_as([](Index i, Index, Index left, Index right, Index) {
              return Range{i - left, i + right + 1};
            }));
  table.add("window-without-left", "the range begins at key 0, whatever `left` is",
            seen_as([](Index, Index at, Index, Index right, Index) {
              return Range{0, at + right + 1};
            }));
  table.add("window-without-right", "the range ends at the last key, whatever `right` is",
            seen_as([](Index, Index at, Index left, Index, Index Nk) {
              return Range{at - left, Nk};
            }));
  table.add("window-left-one-too-few", "the range begins one key late: key i + (Nk − Nq) − left is in it",
            seen_as([](Index, Index at, Index left, Index right, Index) {
              return Range{at - left + 1, at + right + 1};
            }));
  table.add("window-right-one-too-few", "the range ends one key early: key i + (Nk − Nq) + right is in it",
            seen_as([](Index, Index at, Index left, Index right, Index) {
              return Range{at - left, at + right};
            }));
  return table;
}

/// How many heads of Q share one of K and V.
Index group_of(const Problem& problem) {
  return problem.shape.H / problem.shape.Hkv;
}
bool shares_heads(const Attention& m) {
  return group_of(*m.problem) > 1;
}

/// A pair of a query and a key, and its scaled score.
struct Pair {
  const Problem& problem;
  Index head, query, key;
  double score;
  double distance() const { return double(query + problem.shape.Nk - problem.shape.Nq - key); }
  double slope(double head_number) const { return std::exp2(-8 * head_number / double(problem.shape.H)); }
  double capped() const {
    const float cap = problem.mask.softcap;
    return cap > 0 ? cap * std::tanh(score / cap) : score;
  }
};
template <class Other>
auto changed_to(Other other) {
  return [=](Attention& m) {
    m.changed = [other, given = m.problem](const judge::Head& head, Index query, Index key, float score) {
      return float(other(Pair{*given, head.h, query, key, score}));
    };
  };
}
Table alibi() {
  Table table([](const Attention& m) { return m.problem->mask.alibi; });
  table.add("alibi-natural-units", "the slope is not multiplied by log2(e), as the scores are",
            changed_to([](const Pair& p) {
              return p.capped() - p.slope(double(p.head + 1)) * double(judge::ln_2) * std::abs(p.distance());
            }));
  table.add("alibi-heads-from-0", "head h has the slope 2^(−8h/H): it is 2^(−8(h + 1)/H)",
            changed_to([](const Pair& p) { return p.capped() - p.slope(double(p.head)) * std::abs(p.distance()); }));
  table.add("alibi-whole-exponent", "the exponent of a slope, −8(h + 1)/H, is divided in whole numbers",
            changed_to([](const Pair& p) {
              const Index exponent = -8 * (p.head + 1) / p.problem.shape.H;
              return p.capped() - std::exp2(double(exponent)) * std::abs(p.distance());
            }));
  table.add("alibi-log2-in-exponent",
            "log2(e) multiplies the exponent of the slope, −8(h + 1)/H: it has to multiply the slope",
            changed_to([](const Pair& p) {
              const double slope = p.slope(double(p.head + 1) * double(judge::log2_e)) * double(judge::ln_2);
              return p.capped() - slope * std::abs(p.distance());
            }));
  table.add("alibi-one-slope", "all heads have the slope of the first",
            changed_to([](const Pair& p) { return p.capped() - p.slope(1) * std::abs(p.distance()); }),
            [](const Attention& m) { return m.problem->shape.H > 1; });
  table.add("alibi-added", "the distance raises the score: it has to lower it", changed_to([](const Pair& p) {
              return p.capped() + p.slope(double(p.head + 1)) * std::abs(p.distance());
            }));
  table.add("alibi-signed", "keys after the diagonal gain by their distance: it counts in both directions",
            changed_to([](const Pair& p) { return p.capped() - p.slope(double(p.head + 1)) * p.distance(); }));
  table.add("slope-of-the-kv-head",
            "a head of Q has the slope that its head of K and V would have: slopes count heads of Q",
            changed_to([](const Pair& p) {
              const Index G = group_of(p.problem);
              return p.capped() - p.slope(double((p.head / G + 1) * G)) * std::abs(p.distance());
            }),
            shares_heads);
  const auto distance_of_parts = [&](const char* sentence, Index by) {
    table.add(
        "alibi-distance-of-parts", sentence,
        [=](Attention& m) {
          changed_to([=, Bc = m.tiling.Bc](const Pair& p) {
            const Index in_parts = p.key % Bc / 8 * 8;  // how much further on its part of the tile is than the first
            return p.capped() - p.slope(double(p.head + 1)) * std::abs(p.distance() + double(by * in_parts));
          })(m);
        },
        &Attention::tiled);
  };
  distance_of_parts("all parts of a tile have the distances of its first one: in part j they are 8·j less", 1);
  distance_of_parts("the distance grows by 8 from part to part: it is the diagonal less the key, so that it falls", 2);
  table.add("alibi-missing", "nothing is subtracted for the distance",
            changed_to([](const Pair& p) { return p.capped(); }));
  return table;
}
Table softcaps() {
  Table table([](const Attention& m) { return m.problem->mask.softcap > 0 && !m.problem->mask.alibi; });
  const auto capped = [](double factor, double before) {
    return changed_to([=](const Pair& p) {
      const double cap = p.problem.mask.softcap;
      return factor * cap * std::tanh(before * p.score / cap);
    });
  };
  table.add("softcap-natural-units", "the exponent of 2 is 2x: e^2x is 2^(2x·log2(e))", capped(1, judge::ln_2));
  table.add("softcap-half", "the exponent is x in place of 2x", capped(1, 0.5));
  table.add("softcap-negative", "the score is capped with the wrong sign", capped(-1, 1));
  table.add(
      "softcap-not-multiplied", "tanh is not multiplied by the cap",  // which is in units of log2
      changed_to([](const Pair& p) { return std::tanh(p.score / p.problem.mask.softcap) * double(judge::ln_2); }));
  table.add("softcap-infinite", "for a large x e^2x is infinite, and ∞ / ∞ is NaN: e^2x may stand in the divisor alone",
            changed_to([=](const Pair& p) {
              const bool infinite = 2 * p.score / p.problem.mask.softcap * double(judge::log2_e) >= 128;
              return infinite ? double(judge::not_a_number) : p.capped();
            }));
  table.add("softcap-missing", "scores are not capped", changed_to([](const Pair& p) { return p.score; }));
  return table;
}
Table sinks() {
  Table table([](const Attention& m) { return !m.problem->mask.sink.empty(); });
  table.add("sink-four-times", "each of the four lanes of a quad counts the sink", [](Attention& m) {
    m.sink = [right = m.sink](const judge::Head& head) { return right(head) + float(std::log(4.0)); };
  });
  table.add("sink-missing", "the sink is not in l", [](Attention& m) { m.sink = {}; });
  table.add(
      "sink-of-the-kv-head", "a head of Q has the sink with the number of its head of K and V: sinks count heads of Q",
      [](Attention& m) {
        m.sink = [given = m.problem](const judge::Head& head) {
          return given->mask.sink[std::size_t(head.h / group_of(*given))];
        };
      },
      shares_heads);
  return table;
}

// ---- The gradients ----

using judge::GradientModel;
using GradientTable = judge::MistakeTable<GradientModel>;

bool is_changed(const GradientModel& m) {
  return bool(m.changed);
}
bool is_capped(const GradientModel& m) {
  return m.inputs->problem.mask.softcap > 0;
}
bool has_window(const GradientModel& m) {
  return m.inputs->problem.mask.kind == Mask::window && m.inputs->problem.mask.lengths.empty() && m.tiled();
}
/// The derivative of a softcap, from tanh and the cap.
auto derivative_as(double (*of)(double tanh, double cap)) {
  return [=](GradientModel& m) {
    m.derivative = [of, cap = double(m.inputs->problem.mask.softcap)](double score) {
      return of(std::tanh(score / cap), cap);
    };
  };
}
/// A window of which one end alone is asked, in the Q tiles that pass by a K/V tile.
auto seen_within(bool left, bool right) {
  return [=](GradientModel& m) {
    m.sees = [=, shape = m.inputs->problem.shape, mask = m.inputs->problem.mask, Bc = m.owned, Br = m.passing](
                 Index i, Index j) {
      const Index diagonal = shape.Nq - shape.Nk, first_key = judge::round_down(j, Bc);
      const Index first = first_key - mask.right + diagonal;
      const Index last = std::min(first_key + Bc, shape.Nk) - 1 + mask.left + diagonal;
      if (last < 0 || i < judge::round_down(std::max<Index>(0, first), Br) || i / Br > last / Br) return false;
      const Index distance = i - diagonal - j;
      return (!left || distance <= mask.left) && (!right || -distance <= mask.right);
    };
  };
}
GradientTable gradients() {
  GradientTable table([](const GradientModel& m) { return is_changed(m) || has_window(m); });
  table.add(
      "derivative-missing",
      "dS does not take the derivative of the softcap, 1 − tanh² of the score, or takes it where S holds P by now",
      [](GradientModel& m) { m.derivative = {}; }, is_capped);
  table.add("derivative-not-squared", "the derivative of a softcap is taken for 1 − tanh: it is 1 − tanh²",
            derivative_as([](double tanh, double) { return 1 - tanh; }), is_capped);
  table.add("derivative-added", "the derivative of a softcap is taken for 1 + tanh²: it is 1 − tanh²",
            derivative_as([](double tanh, double) { return 1 + tanh * tanh; }), is_capped);
  table.add("derivative-of-the-score", "the score is taken for tanh: it is cap·tanh",
            derivative_as([](double tanh, double cap) {
              const double score = tanh * cap / double(judge::ln_2);
              return 1 - score * score;
            }),
            is_capped);
  table.add(
      "derivative-scaled-twice",
      "the derivative is that at the scaled product: what scales the product is handed it bare",
      [](GradientModel& m) {
        const double cap = m.inputs->problem.mask.softcap, again = double(m.score_scale) * double(judge::log2_e);
        m.derivative = [=](double score) {
          const double tanh = std::tanh(score * again / cap);
          return 1 - tanh * tanh;
        };
      },
      is_capped);
  table.add(
      "P-unchanged", "P is recomputed from the scaled product: it takes the changed score, as in the forward pass",
      [](GradientModel& m) { m.changed = {}; }, is_capped);
  table.add(
      "P-without-distance", "P is recomputed with a distance of 0 for every pair",
      [](GradientModel& m) {
        m.changed = [mask = m.inputs->problem.mask](Index, Index, Index, double score) {
          return mask.softcap > 0 ? mask.softcap * std::tanh(score / mask.softcap) : score;
        };
      },
      [](const GradientModel& m) { return m.inputs->problem.mask.alibi; });
  table.add("gradient-without-left", "{gradient} has pairs whose key is before the window of its query",
            seen_within(false, true), has_window);
  table.add("gradient-without-right", "{gradient} has pairs whose key is behind the window of its query",
            seen_within(true, false), has_window);
  return table;
}

/// Where heads of Q share K and V.
GradientTable shared_heads() {
  GradientTable table([](const GradientModel& m) { return group_of(m.inputs->problem) > 1; });
  table.add("first-head-passes-alone", "of each group the Q tiles of the first head alone pass by a K/V tile",
            [](GradientModel& m) {
              m.heads = [own = m.heads, G = group_of(m.inputs->problem)](Index h) {
                GradientModel::Heads heads = own(h);
                if (h % G != 0) heads.to = -1;
                return heads;
              };
            });
  const auto slope_of = [&](const char* id, const char* sentence, Index (*row)(Index head, Index i, const Shape& s)) {
    table.add(
        id, sentence,
        [=](GradientModel& m) {
          m.changed = [=, mask = m.inputs->problem.mask, shape = m.inputs->problem.shape](Index head, Index i, Index j,
                                                                                          double score) {
            return mask.changed(shape, row(head, i, shape), j, score);
          };
        },
        [](const GradientModel& m) { return m.inputs->problem.mask.alibi; });
  };
  slope_of("gradient-slope-of-the-kv-head",
           "P is recomputed with the slope that the head of K and V would have: slopes count heads of Q",
           [](Index head, Index i, const Shape& s) {  // the last head of a group has it
             const Index G = s.H / s.Hkv;
             return (head / G * G + G - 1) * s.Nq + i;
           });
  slope_of("gradient-slope-of-the-first-head",
           "P of all heads of a group is recomputed with the slope of its first head",
           [](Index head, Index i, const Shape& s) {
             const Index G = s.H / s.Hkv;
             return head / G * G * s.Nq + i;
           });
  return table;
}
GradientTable all_gradients() {
  GradientTable table;
  table.add(shared_heads());
  table.add(gradients());
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "15_which_pairs",
     .uses = {"08_registers", "09_backward_registers", "14_grouped_queries"},
     .attention = {{judge::Turn::mask, in_both, windows()},
                   {judge::Turn::mask, in_both, alibi()},
                   {judge::Turn::mask, in_both, softcaps()},
                   {judge::Turn::mask, in_both, sinks()}},
     .gradients = all_gradients(),
     .claimed = judge::words(
         "queries-before-0 queries-from-0 queries-to-the-end left-for-right last-row-block row-blocks dsink-sign "
         "dsink-without-D dsink-without-weight dsink-natural dsink-first-rows "
         "dsink-last-batch gradients-by-atomics "
         "window-before-0 window-behind-Nk tile-called-full tile-called-empty tile-called-partial "
         "tiles-from-0 block-tiles sequence-of-block sequences-mixed other-bits extra-memory "
         "future-tile-used narrow-access not-repeatable order-dependent row-without-keys rows-mixed "
         "traffic uncoalesced"),
     .without_mutant = {{judge::one_claim_of_several,
                         judge::words("sequences-mixed other-bits traffic future-tile-used gradients-by-atomics")}}});

}  // namespace
}  // namespace workbook::test
