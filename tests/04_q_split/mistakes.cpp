// What goes wrong where each lane owns a row of Q.
#include <algorithm>
#include <memory>
#include <vector>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::Head, judge::Index, judge::infinity, judge::round_down, judge::Row;
using Table = ch01::AttentionTable;

/// The steps of the 32 rows of a warp, each done right: what a row takes from its neighbours.
class Warp {
 public:
  explicit Warp(const Attention& right) : right_(right) {}

  /// The rows of the warp of `row`. A row's steps: what O is multiplied by.
  struct Step {
    float O_factor;
  };
  /// What the row of lane `lane` of this warp has in its l at the end. Rows behind the last are zeros: each of their
  /// scores is 0, and so is their m.
  float l_of(const Row& row, Index lane) {
    of(row);
    return lane < Index(l_.size()) ? l_[std::size_t(lane)] : float(right_.Nk());
  }
  const std::vector<std::vector<Step>>& of(const Row& row) {
    const Index first = row.query / 32 * 32;
    if (row.head->b == b_ && row.head->h == h_ && first == first_) return rows_;
    b_ = row.head->b, h_ = row.head->h, first_ = first;
    rows_.clear(), l_.clear();
    for (Index i = first; i < std::min(first + 32, right_.Nq()); ++i) {
      std::vector<Step>& steps = rows_.emplace_back();
      l_.push_back(right_.attend(*row.head, i, [&](const Row& r) { steps.push_back({r.O_factor}); }).l);
    }
    return rows_;
  }

 private:
  Attention right_;
  Index b_ = -1, h_ = -1, first_ = -1;
  std::vector<std::vector<Step>> rows_;
  std::vector<float> l_;
};

/// Rows that fill up the last warp's 32 have a maximum that never moves.
bool all_move(const std::vector<std::vector<Warp::Step>>& rows, Index step) {
  return rows.size() == 32 &&
         std::ranges::all_of(rows, [=](const auto& steps) { return steps[std::size_t(step)].O_factor != 1; });
}

Table both() {
  Table table(&Attention::lanes_own_rows);
  for (const Index rows : {16, 32, 64})
    table.add(
        "Q-of-the-first-warp", "all warps of a block take the Q of its first: each has rows of its own",
        [=](Attention& m) {
          m.Q = [=, Br = m.tiling.Br](const Tensor<float>& Q, Index b, Index h, Index row, Index column) {
            return Index(Q.index(b, h, round_down(row, Br) + row % rows, column));
          };
        },
        [=](const Attention& m) { return m.tiling.Br > rows; });
  table.add("S-fragments-transposed",
            "the 16 × 16 pieces of S are stored with rows and columns exchanged: Sᵀ = K·Qᵀ is stored row-major",
            [](Attention& m) {
              m.after_scores([right = m](Row& row) {
                for (Index j = 0; j < row.keys; ++j) {
                  const Index key = row.first + j;
                  float& x = row.S[std::size_t(j)];
                  if (x > -infinity)
                    x = right.score(*row.head, round_down(row.query, 16) + key % 16,
                                    round_down(key, 16) + row.query % 16);
                }
              });
            });
  table.add(
      "S-fragments-transposed",
      "rows and columns of S are exchanged where it is read: Sᵀ lies there, a key's scores in a row",
      [](Attention& m) {
        m.after_scores([right = m](Row& row) {
          for (Index j = 0; j < row.keys; ++j) {
            float& x = row.S[std::size_t(j)];
            if (x > -infinity) x = right.score(*row.head, round_down(row.query, 32) + j, row.first + row.query % 32);
          }
        });
      },
      [](const Attention& m) { return m.step == 32; });
  return table;
}

/// The scale, and m, which holds it. A step that is masked is scaled before.
Table scaled_maxima() {
  const auto masked = [](const Attention& m, const Row& row) {
    return row.first + m.step > m.visible(row.query / 32 * 32);
  };
  Table table([](const Attention& m) { return m.lanes_own_rows() && m.scale > 0; });
  table.add("m-scaled-again", "`scale` multiplies S − m: m holds it already, it belongs to S alone", [=](Attention& m) {
    m.after_maximum([=, right = m](Row& row) {
      if (!masked(right, row)) row.subtracted *= right.scale * judge::log2_e;
    });
  });
  table.add("m-not-scaled",
            "m is the largest score before it is multiplied by `scale`: what is subtracted has to be of the same "
            "scores as P",
            [=](Attention& m) {
              m.after_maximum([=, right = m](Row& row) {
                if (!masked(right, row)) right.raise(row, row.m_tile / right.scale * judge::ln_2);
              });
            });
  return table;
}

/// Where a step is less than a tile.
Table steps(bool of_K) {
  Table table([](const Attention& m) { return m.lanes_own_rows() && m.step < m.tiling.Bc; });
  const auto first_step = [](const Attention& m) {
    return [Bc = m.tiling.Bc, step = m.step](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
      return Index(tensor.index(b, h, round_down(row, Bc) + row % Bc % step, column));
    };
  };
  if (of_K)
    table.add("K-first-step", "every step reads the first keys of its tile: first_key is missing",
              [=](Attention& m) { m.K = first_step(m); });
  else
    table.add("V-first-step", "every step reads the first values of its tile: first_key is missing",
              [=](Attention& m) { m.V = first_step(m); });
  return table;
}

/// The step with keys that do not exist: its scores are scaled before they become −∞.
Table ragged_steps() {
  Table table([](const Attention& m) { return m.lanes_own_rows() && m.unmasked() && m.Nk() % m.step != 0; });
  table.add("masked-tiles-scaled-twice", "where keys do not exist the scores are scaled twice", [](Attention& m) {
    m.after_scores([step = m.step, factor = m.scale * judge::log2_e](Row& row) {
      for (float& x : row.S) x = row.keys < step && x > -infinity ? x * factor : x;
    });
  });
  table.add("masked-tiles-not-scaled",
            "where keys do not exist the scores are not scaled, neither by 1/√d nor by log2(e)", [](Attention& m) {
              m.after_scores([step = m.step, factor = m.scale * judge::log2_e](Row& row) {
                for (float& x : row.S) x = row.keys < step && x > -infinity ? x / factor : x;
              });
            });
  return table;
}

Table outputs() {
  Table table(&Attention::lanes_own_rows);
  table.add("PV-first-keys", "only the first 16 keys of each step enter PV", [](Attention& m) {
    m.after_weights([](Row& row) {
      for (std::size_t j = 16; j < row.weights.size(); ++j) row.weights[j] = 0;
    });
  });
  table.add("PV-first-half", "only the first half of each step's keys enter PV", [](Attention& m) {
    m.after_weights([step = m.step](Row& row) {
      for (std::size_t j = std::size_t(step) / 2; j < row.weights.size(); ++j) row.weights[j] = 0;
    });
  });
  table.add("all-must-move", "O is rescaled only where the maxima of all 32 rows of a warp move: one is enough",
            [](Attention& m) {
              m.after_factors([warp = Warp(m)](Row& row) mutable {
                if (!all_move(warp.of(row), row.number)) row.O_factor = 1;
              });
            });
  table.add("factors-of-first-half", "rows 16 to 31 of a warp's O are rescaled by the factors of its rows 0 to 15",
            [](Attention& m) {
              m.after_factors([warp = Warp(m)](Row& row) mutable {
                const Index lane = row.query % 32;
                if (lane >= 16) row.O_factor = warp.of(row)[std::size_t(lane - 16)][std::size_t(row.number)].O_factor;
              });
            });
  table.add(
      "columns-of-first-part", "each part of the columns of O is written from the fragments of the first part",
      [](Attention& m) {
        m.after_last([columns = m.step](Row& row) {
          for (Index c = columns; c < Index(row.O.size()); ++c) row.O[std::size_t(c)] = row.O[std::size_t(c % columns)];
        });
      },
      [](const Attention& m) { return m.lanes_own_rows() && m.step < m.d(); });
  table.add("own-l", "each lane divides by the l of its own row, not by that of the row whose part of O it writes",
            [](Attention& m) {
              m.after_last([right = m, warp = Warp(m)](Row& row) mutable {
                // A lane writes eight neighbours; as many columns at a time as a step has keys.
                const Index columns = std::min(right.d(), right.step), lanes_per_row = columns / 8;
                for (Index c = 0; c < right.d(); ++c) {
                  const Index lane = row.query % 32 % (32 / lanes_per_row) * lanes_per_row + c % columns / 8;
                  row.O[std::size_t(c)] *= row.l / warp.l_of(row, lane);
                }
              });
            });
  table.add("second-half-not-rescaled", "rows 16 to 31 of a warp's O are not rescaled", [](Attention& m) {
    m.after_factors([](Row& row) {
      if (row.query % 32 >= 16) row.O_factor = 1;
    });
  });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "04_q_split",
     .uses = {"03_tiled_wmma"},
     .attention = {{judge::Turn::lanes, in_both, both()},
                   {judge::Turn::lanes, in_both, steps(true)},
                   {judge::Turn::lanes, in_both, ragged_steps()},
                   {judge::Turn::lanes, in_both, scaled_maxima()},
                   {judge::Turn::lanes, in_O, steps(false)},
                   {judge::Turn::lanes, in_O, outputs()}},
     .claimed = judge::words(
         "late-copies Q-loaded-again bank-conflicts barriers extra-memory finite-mask first-query-of-32-bits "
         "rows-of-the-next-warps heads-above-65535 "
         "inverse-in-fp16 mask-scaled narrow-access narrow-shared-reads no-vote not-asynchronous "
         "not-repeatable order-dependent rows-mixed shared-traffic slack-ignored slack-too-large "
         "tail-not-zeroed traffic uncoalesced"),
     .without_mutant = {
         {judge::one_of_a_kind, judge::words("all-must-move")},
         {judge::one_claim_of_several, judge::words("narrow-access not-repeatable order-dependent rows-mixed")}}});

}  // namespace
}  // namespace workbook::test
