// What goes wrong where numbers have 8 bits and each block a scale; the rest goes wrong as in chapter 11.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "common/attention/element.hpp"
#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::Index, judge::Row;
using Table = ch01::AttentionTable;

/// The scale of the block of a head that holds this row.
float scale_of(const std::vector<float>& rows, Index row, Index N, Index d) {
  const Index first = judge::round_down(row, float8_block_rows);
  float largest = 0;
  for (Index at = first * d; at < std::min(N, first + float8_block_rows) * d; ++at)
    largest = std::fmax(largest, std::abs(rows[std::size_t(at)]));
  return float8_scale(largest);
}
float K_scale(const Attention& m, const Row& row, Index key) {
  return scale_of(row.head->K, key, m.Nk(), m.d());
}
float V_scale(const Attention& m, const Row& row, Index key) {
  return scale_of(row.head->V, key, m.Nk(), m.d());
}
float Q_scale(const Attention& m, const Row& row, Index query) {
  return scale_of(row.head->Q, std::min(query, m.Nq() - 1), m.Nq(), m.d());
}

/// Scores that are multiplied by another factor than theirs.
template <class Factor>
void add_scores(Table& table, const char* id, const char* sentence, Factor factor) {
  table.add(id, sentence, [=](Attention& m) {
    m.after_scores([=, model = m](Row& row) {
      const float by = factor(model, row);
      for (float& s : row.S) s *= by;
    });
  });
}

Table scores() {
  Table table(&Attention::lanes_own_rows);
  add_scores(table, "K-scale-missing", "the scores are not multiplied by the scale of K's tile",
             [](const Attention& m, const Row& row) { return 1 / K_scale(m, row, row.first); });
  add_scores(table, "K-scale-of-first-tile", "every tile of K has the scale of the first one",
             [](const Attention& m, const Row& row) { return K_scale(m, row, 0) / K_scale(m, row, row.first); });
  add_scores(table, "Q-scale-missing", "the scores are not multiplied by the scale of Q's block",
             [](const Attention& m, const Row& row) { return 1 / Q_scale(m, row, row.query); });
  add_scores(table, "Q-scale-of-first-block", "every block of Q has the scale of the first one",
             [](const Attention& m, const Row& row) { return Q_scale(m, row, 0) / Q_scale(m, row, row.query); });
  add_scores(table, "Q-scale-wrong-block", "a consumer's number, not its queries' block, says which scale Q has",
             [](const Attention& m, const Row& row) {
               return Q_scale(m, row, row.query / 64 * 128) / Q_scale(m, row, row.query);
             });
  return table;
}

/// What of V's tile, whose first key is row.first, reaches O in units that are not its own.
template <class Factor>
void add_values(Table& table, const char* id, const char* sentence, Factor factor) {
  table.add(id, sentence, [=](Attention& m) {
    m.after_weights([=, model = m](Row& row) {
      const float by = factor(model, row);
      for (float& weight : row.weights) weight *= by;
    });
  });
}

Table values() {
  Table table(&Attention::lanes_own_rows);
  add_values(table, "V-units-kept", "O keeps the units of V's tile before: it is not brought to those of the next one",
             [](const Attention& m, const Row& row) { return V_scale(m, row, 0) / V_scale(m, row, row.first); });
  add_values(table, "V-units-inverted", "O is brought to the units of V's next tile the wrong way round",
             [](const Attention& m, const Row& row) {
               const float ratio = V_scale(m, row, 0) / V_scale(m, row, row.first);
               return ratio * ratio;
             });
  add_values(table, "V-units-forgotten", "what V's scale was is not kept for the next tile",
             [](const Attention& m, const Row& row) {
               float factor = 1;
               for (Index key = row.first; key >= 0; key -= float8_block_rows) factor /= V_scale(m, row, key);
               return factor;
             });
  add_values(table, "V-units-of-one-row",
             "only the first of a lane's two rows is brought to the units of V's next tile",
             [](const Attention& m, const Row& row) {
               return row.query % 16 < 8 ? 1 : V_scale(m, row, 0) / V_scale(m, row, row.first);
             });
  table.add("last-rescale-forgotten", "O is not rescaled for the last tile, nor brought to the units of its V",
            [](Attention& m) {
              m.after_factors([model = m](Row& row) {
                if (!row.last || row.number == 0) return;
                row.O_factor = V_scale(model, row, row.first) / V_scale(model, row, row.first + float8_block_rows);
              });
            });
  return table;
}

/// What brings O of the tile before to the units of this one, in which the model keeps no units: the inverse of it.
float units_kept(const Attention& m, const Row& row) {
  return V_scale(m, row, row.first) / V_scale(m, row, row.first + float8_block_rows);
}

/// The factors of all tiles of a row, where nothing is wrong.
std::vector<float> factors_of(const Attention& right, const judge::Head& head, Index query) {
  std::vector<float> factors;
  right.attend(head, query, [&](const Row& row) { factors.push_back(row.O_factor); });
  return factors;
}

/// O that is added up from parts, a tile each.
Table parts() {
  Table table(&Attention::lanes_own_rows);
  table.add("O-not-rescaled", "O is neither rescaled when a tile raises the maximum, nor brought to the units of its V",
            [](Attention& m) {
              m.after_factors([model = m](Row& row) {
                if (row.number > 0) row.O_factor = units_kept(model, row);
              });
            });
  table.add("O-rescaled-too-late", "a part is rescaled as well, with what O was before it", [](Attention& m) {
    m.after_weights([model = m](Row& row) {
      const float by = row.number == 0 ? 0 : row.O_factor / units_kept(model, row);
      for (float& weight : row.weights) weight *= by;
    });
  });
  table.add("last-part-forgotten", "the part of the last tile is not added to O", [](Attention& m) {
    m.after_factors([model = m](Row& row) {
      if (row.last && row.number > 0) row.O_factor = units_kept(model, row);
    });
    m.after_weights([](Row& row) {
      if (row.last) std::fill(row.weights.begin(), row.weights.end(), 0.0f);
    });
  });
  table.add("last-32-keys-of-a-part", "of each tile only the last 32 keys reach O: each product is added to nothing",
            [](Attention& m) {
              m.after_weights([](Row& row) {
                for (std::size_t j = 0; j < row.weights.size() && j < 96; ++j) row.weights[j] = 0;
              });
            });
  table.add(
      "factor-of-the-next-tile",
      "a part is added to O with the factor of the next tile: its softmax has written that over the one that belongs "
      "to the part",
      [](Attention& m) {
        m.after_factors([right = m](Row& row) {
          const auto number = std::size_t(row.number);
          if (number == 0 || row.last) return;
          const float next = factors_of(right, *row.head, row.query)[number + 1];
          Row behind = row;
          behind.first -= float8_block_rows;
          row.O_factor = next * units_kept(right, row) / units_kept(right, behind);
        });
      });
  table.add("factor-of-the-first-row", "both rows of a lane are rescaled by the factor of the first one",
            [](Attention& m) {
              m.after_factors([right = m](Row& row) {
                if (row.number == 0 || row.query % 16 < 8) return;
                row.O_factor = factors_of(right, *row.head, row.query - 8)[std::size_t(row.number)];
              });
            });
  return table;
}

/// Of each 32 keys the first 16 of the lower row and the last 16 of the upper one have changed places.
void exchange_registers(Attention& m) {
  const auto steps = std::make_shared<std::vector<std::vector<float>>>();  // P of the row 8 above or below
  m.after_weights([=, right = m](Row& row) {
    if (row.number == 0) {
      steps->clear();
      right.attend(*row.head, row.query ^ 8, [&](const Row& other) { steps->push_back(other.weights); });
    }
    const std::vector<float>& other = (*steps)[std::size_t(row.number)];
    for (std::size_t j = 0; j < row.weights.size(); ++j)
      if ((j % 32 >= 16) == (row.query % 16 < 8)) row.weights[j] = (j ^ 16) < other.size() ? other[j ^ 16] : 0;
  });
}

Table offsets() {
  Table table(&Attention::lanes_own_rows);
  // Of the LSE alone both are the same.
  table.add("no-offset",
            "P has no offset: small P are 0 in e4m3, and the LSE, from which 2^8 is taken away, is 8·ln 2 too small",
            [](Attention& m) { m.after_last([](Row& row) { row.l /= 256; }); });
  table.add("l-without-offset", "l sums P without the offset that P has: O is 2^8 times too large", [](Attention& m) {
    m.after_last([](Row& row) {
      for (float& x : row.O) x *= 256;
      row.l /= 256;
    });
  });
  table.add("lse-offset", "the LSE keeps the offset of P: it is 8·ln 2 too large",
            [](Attention& m) { m.after_last([](Row& row) { row.l *= 256; }); });
  table.add("offset-in-the-factor",
            "what brings l and O to the new m holds the offset of P, so that each tile makes them 2^8 times as large",
            [](Attention& m) { m.after_factors([](Row& row) { row.l_factor *= 256, row.O_factor *= 256; }); });
  for (const bool safe : {true, false})
    table.add("offset-in-m",
              "m keeps the offset of P, and the next comparison, the next factor and the LSE take it for the row's "
              "maximum: they are 2^8 off. Subtract the offset only where P is formed",
              [=](Attention& m) {
                m.after_step([=, right = m](Row& row) {
                  row.m = (safe ? right.safe(row.subtracted) : row.m) - 8 * judge::ln_2;
                });
              });
  table.add("m-0-before-first-key",
            "a row that has seen no key yet keeps the 0 that is subtracted for it as its maximum: P of later keys, far "
            "below it, is 0 in e4m3",
            [](Attention& m) {
              m.after_maximum([](Row& row) {
                if (row.m == -judge::infinity) row.m = row.subtracted = 0;
              });
            });
  table.add("A-parts-exchanged", "the lower left and the upper right part of P are exchanged: registers 1 and 2",
            exchange_registers);
  table.add("keys-exchanged", "of each 16 keys the first eight and the last eight change places between P and V",
            [](Attention& m) {
              m.after_weights([](Row& row) {
                std::vector<float> moved(row.weights.size());
                for (std::size_t j = 0; j < moved.size(); ++j)
                  moved[j] = (j ^ 8) < moved.size() ? row.weights[j ^ 8] : 0;
                row.weights = moved;
              });
            });
  table.add("P-saturated", "P·2^16 does not fit: 448 is the largest number of e4m3", [](Attention& m) {
    m.after_weights([](Row& row) {
      for (float& weight : row.weights) weight = std::min(weight, 448.0f / 65536);
    });
    m.lse = [](float m, float l) { return m + std::log(l) + 8 * judge::ln_2; };
  });
  return table;
}

/// The scales of the tile behind: both of K and of V.
Table tiles() {
  Table table(&Attention::lanes_own_rows);
  const auto next = [](const Attention& m, const Row& row) {
    // Scales are read a tile ahead, so that the first two tiles of the loop, the last two of keys, are right.
    return row.first + 2 * float8_block_rows < m.Nk() ? row.first + float8_block_rows : row.first;
  };
  table.add("scales-of-next-tile", "a tile of K and V is given the scales of the tile behind it", [=](Attention& m) {
    m.after_scores([=, model = m](Row& row) {
      for (float& s : row.S) s *= K_scale(model, row, next(model, row)) / K_scale(model, row, row.first);
    });
    m.after_weights([=, model = m](Row& row) {
      for (float& weight : row.weights)
        weight *= V_scale(model, row, next(model, row)) / V_scale(model, row, row.first);
    });
  });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "12_fp8",
     .uses = {"11_wgmma"},
     .attention = {{judge::Turn::scores, in_both, tiles()},
                   {judge::Turn::scores, in_both, scores()},
                   {judge::Turn::lanes, in_both, offsets()},
                   {judge::Turn::lanes, in_O, values()},
                   {judge::Turn::lanes, in_O, parts()}},
     .claimed = judge::words(
         "waits-early accuracy barriers difference-of-the-sum difference-turned keys-in-order keys-inverse "
         "not-orthogonal offset-missing "
         "order-dependent "
         "outlier-not-spread overlap row-without-keys rows-mixed rows-rotated-together scale-no-power scale-too-large "
         "scale-too-small score-error signs-forgotten n-not-nearest coefficients-turned fraction-of-another "
         "fraction-turned "
         "power-missing below-the-exponent nan-hidden exp2-count stage-kept steps-between-lanes tail-not-zeroed "
         "traffic "
         "turns uncoalesced waits wgmma-count words-swizzled-once"),
     .without_mutant = {{judge::one_claim_of_several, judge::words("accuracy outlier-not-spread score-error")}}});

}  // namespace
}  // namespace workbook::test
