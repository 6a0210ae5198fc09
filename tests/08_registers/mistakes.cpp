// What goes wrong where a row of S lies in the four lanes of a quad, and its keys in parts of eight.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

using ch01::Attention;
using judge::Index, judge::Row;
using Table = ch01::AttentionTable;

/// Which lane of a quad has this column of a part (16, 8).
std::size_t lane_of(Index column) {
  return std::size_t(column % 8 / 2);
}
/// Whether a key, or a column of O, is in the right one of two parts side by side.
bool in_right_part(std::size_t place) {
  return place % 16 >= 8;
}

/// The element that (row, column) of a matrix made of squares takes from the square that it lies in, whose side is
/// `size`: `place` says from which row and column of it. Rows that do not exist are zeros.
template <class InSquare>
judge::Place from_squares(Index size, InSquare place) {
  return [=](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) -> Index {
    const auto [r, c] = place(row % size, column % size);
    const Index from = judge::round_down(row, size) + r;
    return from < tensor.sizes[2] ? Index(tensor.index(b, h, from, judge::round_down(column, size) + c)) : -1;
  };
}
/// The lower left and the upper right part (8, 8) of a matrix (16, 16) have changed places.
std::pair<Index, Index> parts_exchanged(Index row, Index column) {
  return (row < 8) == (column < 8) ? std::pair{row, column} : std::pair{row ^ 8, column ^ 8};
}

/// A wrong way for lanes to name rows of a square (16, 16), each one of its two chunks, from those that are right.
struct Naming {
  const char* sentence;
  std::pair<Index, Index> (*named)(Index lane, Index row, Index chunk);
};
constexpr Naming namings[] = {
    {"two neighbouring lanes name the two chunks of a row: eight neighbours name the eight rows of a part",
     [](Index lane, Index, Index) {
       return std::pair{lane / 2, lane % 2};
     }},
    {"all lanes name the first eight of 16 rows",
     [](Index, Index row, Index chunk) {
       return std::pair{row % 8, chunk};
     }},
    {"all lanes name the first eight of 16 columns",
     [](Index, Index row, Index) {
       return std::pair{row, Index(0)};
     }},
};
/// K's lanes go through the parts of a square by rows, those of Q and V by columns.
judge::Place as_named(const Naming& naming, bool by_rows) {
  return from_squares(16, [=](Index row, Index column) {
    const Index lane = by_rows ? row / 8 * 16 + column / 8 * 8 + row % 8 : column / 8 * 16 + row;
    const auto [named_row, chunk] = naming.named(lane, row, column / 8);
    return std::pair{named_row, chunk * 8 + column % 8};
  });
}

/// Behind all others, since some are what a product makes of the right registers.
Table names_of_rows() {
  Table table(&Attention::lanes_own_rows);
  for (const Naming& naming : namings) {
    for (judge::Place Attention::*operand : {&Attention::Q, &Attention::K, &Attention::V})
      table.add("ldmatrix-rows",
                std::string("where ") +
                    (operand == &Attention::Q   ? "Q"
                     : operand == &Attention::K ? "K"
                                                : "V") +
                    " is loaded by ldmatrix, " + naming.sentence,
                [=](Attention& m) { m.*operand = as_named(naming, operand == &Attention::K); });
  }
  return table;
}

/// What ldmatrix brings from other places than it should.
Table loads() {
  Table table(&Attention::lanes_own_rows);
  table.add("Q-parts-exchanged",
            "of each 16 x 16 elements of Q the lower left and the upper right part have changed places: a left operand "
            "goes through its parts by columns",
            [](Attention& m) { m.Q = from_squares(16, parts_exchanged); });
  table.add("K-parts-exchanged",
            "of each 16 x 16 elements of K the lower left and the upper right part have changed places: this operand "
            "goes through its parts by rows of the tile",
            [](Attention& m) { m.K = from_squares(16, parts_exchanged); });
  table.add("K-other-keys",
            "of each 16 keys the first eight take half of the columns from the eight behind them: a product takes two "
            "parts of the same keys",
            [](Attention& m) {
              m.K = from_squares(16, [](Index row, Index column) {
                return std::pair{row < 8 && column >= 8 ? row + 8 : row, row < 8 && column >= 8 ? column - 8 : column};
              });
            });
  // Registers 0 and 1 of what is loaded are the first eight keys, of the first and of the last eight columns; 2 and 3
  // the other keys. One of the four that the two products take is another one.
  for (int place = 0; place < 4; ++place) {
    for (int taken = 0; taken < 4; ++taken) {
      if (taken == place) continue;
      table.add(
          "K-other-keys",
          "a product of 16 keys takes the wrong part of K: the first eight keys are registers 0 and 1, the others 2 "
          "and 3",
          [=](Attention& m) {
            m.K = from_squares(16, [=](Index row, Index column) {
              if (row / 8 * 2 + column / 8 != place) return std::pair{row, column};
              return std::pair{Index(taken / 2 * 8) + row % 8, Index(taken % 2 * 8) + column % 8};
            });
          });
    }
  }
  return table;
}

/// The lab, whose two stages take turns.
Table stages() {
  Table table([](const Attention& m) { return m.several_tiles() && !m.lanes_own_rows(); });
  table.add("tile-after-next",
            "K_j and V_j are those of tile j + 2, which goes to the same stage: its copies begin, and are waited for, "
            "before tile j has been read",
            [](Attention& m) {
              m.K = m.V = [Bc = m.tiling.Bc](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
                const Index later = row + 2 * Bc;
                return Index(tensor.index(b, h, later < tensor.sizes[2] ? later : row, column));
              };
            });
  return table;
}

Table scores() {
  Table table(&Attention::lanes_own_rows);
  table.add("first-eight-keys-twice", "of each 16 keys the first eight give the scores of all 16", [](Attention& m) {
    m.after_scores([right = m](Row& row) {
      for (std::size_t j = 8; j < row.S.size(); ++j)
        if (in_right_part(j) && row.S[j] > -judge::infinity)
          row.S[j] = right.score(*row.head, row.query, row.first + Index(j) - 8);
    });
  });
  for (const bool all : {true, false})
    table.add("Q-of-the-upper-rows",
              "the lower 16 rows of a warp are multiplied with the Q of the upper 16: each row tile has its own",
              [=](Attention& m) {
                m.after_scores([=, right = m](Row& row) {
                  for (std::size_t j = 0; j < row.S.size(); ++j)
                    if (row.query % 32 >= 16 && (all || !in_right_part(j)) && row.S[j] > -judge::infinity)
                      row.S[j] = right.score(*row.head, row.query - 16, row.first + Index(j));
                });
              });
  return table;
}

/// What is wrong with an A (16, 16) that a lane makes: of P before it meets V, of O on its way to memory, or of both,
/// where one function makes both. `of_row` gives what a row holds instead, of its own elements and those of the row 8
/// above or below.
using OfRow = std::vector<float> (*)(const std::vector<float>& own, const std::vector<float>& other, Index query);
void add_operands(Table& table, const char* id, const char* sentence, OfRow of_row) {
  enum class OfO {
    no,
    divided,
    not_divided
  };  // O with the elements of the other row, before it is divided by l or after
  for (const auto& [of_P, of_O] :
       {std::pair(true, OfO::divided), {true, OfO::no}, {false, OfO::divided}, {false, OfO::not_divided}}) {
    table.add(id, sentence, [=, of_P = of_P, of_O = of_O](Attention& m) {
      const auto steps = std::make_shared<std::vector<std::vector<float>>>();  // P of the other row
      const Attention right = m;
      if (of_P)
        m.after_weights([=](Row& row) {
          if (row.number == 0) {
            steps->clear();
            right.attend(*row.head, row.query ^ 8, [&](const Row& other) { steps->push_back(other.weights); });
          }
          row.weights = of_row(row.weights, (*steps)[std::size_t(row.number)], row.query);
        });
      if (of_O != OfO::no)
        m.after_last([=, before = m](Row& row) {
          Row other = before.attend(*row.head, row.query ^ 8);
          if (of_O == OfO::not_divided)
            for (float& x : other.O) x *= other.l / row.l;
          row.O = of_row(row.O, other.O, row.query);
        });
    });
  }
}
float at_or_zero(const std::vector<float>& values, std::size_t i) {
  return i < values.size() ? values[i] : 0;
}
std::vector<float> swapped_pairs(const std::vector<float>& own, const std::vector<float>&, Index) {
  std::vector<float> swapped(own.size());
  for (std::size_t j = 0; j < own.size(); ++j) swapped[j] = at_or_zero(own, j ^ 1);
  return swapped;
}
/// The lower left and upper right parts are exchanged: half of a row is the other's, from the other side.
std::vector<float> with_parts_exchanged(const std::vector<float>& own, const std::vector<float>& other, Index query) {
  std::vector<float> mixed = own;
  for (std::size_t j = 0; j < own.size(); ++j)
    if (in_right_part(j) == (query % 16 < 8)) mixed[j] = at_or_zero(other, j ^ 8);
  return mixed;
}
/// A lane's four elements of a part (16, 8) are two of its first row and two of its second one, taken for two of each
/// column.
std::vector<float> rows_by_columns(const std::vector<float>& own, const std::vector<float>& other, Index query) {
  std::vector<float> mixed = own;
  const bool upper = query % 16 < 8;
  for (std::size_t j = 0; j < own.size(); ++j)
    if ((j % 2 == 1) == upper) mixed[j] = at_or_zero(other, j ^ 1);
  return mixed;
}
/// Pairs are made of the same columns of both parts beside each other, a lane's registers taken in their order.
std::vector<float> pairs_four_apart(const std::vector<float>& own, const std::vector<float>& other, Index query) {
  std::vector<float> mixed(own.size());
  const bool upper = query % 16 < 8;
  for (std::size_t j = 0; j < own.size(); ++j) {
    // Register i of A, elements i and i + 4 of D: rows i % 2 and columns i / 2 of A, of D element e has row e / 2 % 2.
    const std::size_t i = (in_right_part(j) ? 2 : 0) + (upper ? 0 : 1), e = i + 4 * (j % 2);
    const std::size_t column = j / 16 * 16 + e / 4 * 8 + j % 8 / 2 * 2 + e % 2;
    mixed[j] = at_or_zero((e / 2 % 2 == 0) == upper ? own : other, column);
  }
  return mixed;
}

/// O's chunks in the order of one side's swizzle.
void add_plain_chunks(Table& table) {
  table.add("O-swizzled-on-one-side",
            "O goes through shared memory swizzled on one side alone: stored so and read plainly, or stored plainly "
            "where the reader, or TMA, undoes a swizzle",
            [](Attention& m) {
              m.after_last([](Row& row) {
                const std::size_t d = row.O.size(), side_by_side = d < 64 ? 64 / d : 1;
                const std::size_t moved = std::size_t(row.query) / side_by_side % (8 / side_by_side);
                const std::vector<float> O = row.O;
                for (std::size_t c = 0; c < d; ++c) row.O[c] = O[(c / 8 ^ moved) * 8 + c % 8];
              });
            });
}

Table outputs() {
  Table table(&Attention::lanes_own_rows);
  table.add("P-left-part-twice", "of each 16 keys the first eight's P stands for all 16", [](Attention& m) {
    m.after_weights([](Row& row) {
      for (std::size_t j = 8; j < row.weights.size(); ++j)
        if (in_right_part(j)) row.weights[j] = row.weights[j - 8];
    });
    m.after_last([](Row& row) {  // O is rounded by the same function
      for (std::size_t c = 8; c < row.O.size(); ++c)
        if (in_right_part(c)) row.O[c] = row.O[c - 8];
    });
  });
  table.add("P-parts-overlap", "P of 16 keys is made of the parts k and k + 1 of S: they are 2k and 2k + 1",
            [](Attention& m) {
              m.after_weights([](Row& row) {
                for (std::size_t j = row.weights.size(); j-- > 0;) row.weights[j] = row.weights[j / 16 * 8 + j % 16];
              });
            });
  table.add(
      "scores-for-P", "V is multiplied with the scores: P is rounded before the exponential has been taken",
      [](Attention& m) {
        m.after_weights([right = m](Row& row) {
          for (std::size_t j = 0; j < row.weights.size(); ++j)
            row.weights[j] = right.round_P(right.score(*row.head, row.query, row.first + Index(j)) / right.scale);
        });
      },
      [](const Attention& m) { return m.scale != 0; });
  table.add("V-first-keys", "every 16 keys are multiplied with the V of the tile's first 16", [](Attention& m) {
    m.V = [Bc = m.tiling.Bc](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
      return Index(tensor.index(b, h, judge::round_down(row, Bc) + row % 16, column));
    };
  });
  table.add("V-first-columns-twice", "of each 16 columns of V the first eight stand for all 16", [](Attention& m) {
    m.V = [](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
      return Index(tensor.index(b, h, row, column % 16 < 8 ? column : column - 8));
    };
  });
  table.add("V-parts-exchanged",
            "of each 16 x 16 elements of V the lower left and the upper right part have changed places: this operand "
            "goes through its parts by columns of the tile, as A does",
            [](Attention& m) { m.V = from_squares(16, parts_exchanged); });
  table.add("V-not-transposed", "the parts (8, 8) of V are not transposed as they are loaded", [](Attention& m) {
    m.V = from_squares(8, [](Index row, Index column) { return std::pair{column, row}; });
  });
  add_operands(table, "A-pair-swapped",
               "the two elements of a register of A change places: the first belongs in its lower half", swapped_pairs);
  add_operands(table, "A-parts-exchanged",
               "the lower left and the upper right part of A are exchanged: registers 1 and 2", with_parts_exchanged);
  add_operands(
      table, "rows-by-columns",
      "a lane's elements 0 and 1 of a part (16, 8) are its first row, 2 and 3 its second one: they are taken for "
      "its columns",
      rows_by_columns);
  add_operands(
      table, "pairs-four-apart",
      "a register holds two neighbours of a row, elements 2i and 2i + 1 of D: it is given elements i and i + 4",
      pairs_four_apart);
  table.add("divided-by-the-other-row",
            "every second column of O is divided by the l of the other row that a lane has: elements 0 and 1 of a part "
            "are its first row, 2 and 3 its second one",
            [](Attention& m) {
              m.after_last([right = m](Row& row) {
                const Index other = row.query ^ 8;
                // Behind the last query Q is 0, and so are all scores.
                const float l = other < right.Nq() ? right.attend(*row.head, other).l : float(right.Nk());
                for (std::size_t c = row.query % 16 < 8 ? 1 : 0; c < row.O.size(); c += 2) row.O[c] *= row.l / l;
              });
            });
  add_plain_chunks(table);
  table.add("odd-columns-not-divided", "every second column of O is not divided by l", [](Attention& m) {
    m.after_last([](Row& row) {
      for (std::size_t c = 1; c < row.O.size(); c += 2) row.O[c] *= row.l;
    });
  });
  return table;
}

/// The steps of another row, each done right.
class Steps {
 public:
  /// Where row `query` is after the step that `row` is at.
  const Row& at(const Attention& right, const Row& row, Index query) {
    if (row.number == 0) {
      steps_.clear();
      right.attend(*row.head, query, [&](const Row& other) { steps_.push_back(other); });
    }
    return steps_[std::size_t(row.number)];
  }

 private:
  std::vector<Row> steps_;
};

constexpr const char* shuffled_over_rows =
    "a shuffle reaches beyond the quad: lane ^ 4 has another row; a quad's four lanes are lane ^ 1 and lane ^ 2";
/// Whether lanes of a quad have the same after one shuffle by lane ^ step.
auto same_after(std::size_t step) {
  return [=](std::size_t lane, std::size_t other) { return other == lane || other == (lane ^ step); };
}

/// A maximum that is not the whole quad's: each lane has an m of its own, by which it scales its columns of P and of O.
/// The LSE is that of the quad's first lane. other_row: a lane takes also scores of this row, if it is another.
template <class Partner, class OfOther>
void add_maximum(Table& table, const char* id, const char* sentence, Partner partner, Index (*other_row)(Index query),
                 OfOther partner_of_other) {
  table.add(id, sentence, [=](Attention& m) {
    struct Lane {
      float m = -judge::infinity, l = 0;
    };
    const auto lanes = std::make_shared<std::array<Lane, 4>>();
    const auto O = std::make_shared<std::vector<float>>();
    const auto scores = std::make_shared<std::vector<float>>();
    const auto others = std::make_shared<std::vector<float>>();
    m.after_scores([=, right = m](Row& row) {
      *scores = row.S;
      others->assign(row.S.size(), -judge::infinity);
      const Index other = other_row(row.query);
      for (Index j = 0; other != row.query && j < row.keys; ++j)
        if (right.sees(other).contains(row.first + j))
          (*others)[std::size_t(j)] = right.score(*row.head, other, row.first + j);
    });
    m.after_step([=, model = m](Row& row) {
      if (row.number == 0) *lanes = {}, O->assign(std::size_t(model.d()), 0);
      std::array<float, 4> subtracted{}, factor{};
      for (std::size_t k = 0; k < 4; ++k) {
        Lane& lane = (*lanes)[k];
        float largest = -judge::infinity;
        for (std::size_t j = 0; j < scores->size(); ++j) {
          if (partner(k, lane_of(Index(j)))) largest = std::max(largest, (*scores)[j]);
          if (partner_of_other(k, lane_of(Index(j)))) largest = std::max(largest, (*others)[j]);
        }
        const float before = lane.m;
        if (largest > lane.m + model.tiling.lane_rows.slack) lane.m = largest;
        subtracted[k] = model.safe(lane.m);
        factor[k] = std::exp(before - subtracted[k]);
        lane.l *= factor[k];
      }
      for (std::size_t c = 0; c < O->size(); ++c) (*O)[c] *= factor[lane_of(Index(c))];
      for (std::size_t j = 0; j < scores->size(); ++j) {
        const std::size_t k = lane_of(Index(j));
        const float P = std::exp((*scores)[j] - subtracted[k]), weight = model.round_P(P);
        (*lanes)[k].l += P;
        const Index key = row.first + Index(j);
        if (key >= model.Nk()) continue;
        for (std::size_t c = 0; c < O->size(); ++c) (*O)[c] += weight * row.head->V[std::size_t(key * model.d()) + c];
      }
    });
    m.after_last([=, model = m](Row& row) {
      row.m = (*lanes)[0].m;
      row.l = 0;
      for (const Lane& lane : *lanes) row.l += lane.l;
      for (std::size_t c = 0; c < row.O.size(); ++c) row.O[c] = model.divided((*O)[c], row.l);
    });
  });
}

template <class Partner>
void add_maximum(Table& table, const char* id, const char* sentence, Partner partner) {
  add_maximum(
      table, id, sentence, partner, [](Index query) { return query; }, partner);
}

/// Whether the scores of a row's step have been scaled by the mask.
bool scaled_by_the_mask(const Attention& m, const Row& row) {
  const Index end = row.first + m.tiling.Bc;
  return m.scale <= 0 || end > m.Nk() || end > m.visible(judge::round_down(row.query, 32));
}

/// A lane subtracts its first row's m from elements 0 and 2 of each part, then its second row's from 1 and 3. By then
/// the second row's maximum takes every second score without the first row's m, and scaled twice.
void subtract_by_columns(Attention& m) {
  const auto is_upper = [](const Row& row) { return row.query % 16 < 8; };
  m.after_maximum([=, right = m, of_upper = Steps()](Row& row) mutable {
    if (is_upper(row)) return;
    const float subtracted = right.safe(of_upper.at(right, row, row.query ^ 8).subtracted);
    const float scale = scaled_by_the_mask(right, row) ? 1 : right.scale * judge::log2_e;
    float largest = -judge::infinity;
    for (std::size_t j = 0; j < row.S.size(); ++j)
      largest = std::max(largest, j % 2 == 0 ? (row.S[j] - subtracted) * scale : row.S[j]);
    right.raise(row, largest);
  });
  m.after_probabilities([=, with_maxima = m, of_other = Steps()](Row& row) mutable {
    const float others = with_maxima.safe(of_other.at(with_maxima, row, row.query ^ 8).subtracted);
    for (std::size_t j = is_upper(row) ? 1 : 0; j < row.P.size(); j += 2)
      row.P[j] = with_maxima.exponential(row.S[j] - others);
  });
}

Table maxima() {
  Table table(&Attention::lanes_own_rows);
  table.add(
      "scores-not-multiplied",
      "the scores are not multiplied by `scale`, which holds 1/√d and log2(e), before m is subtracted from them",
      [](Attention& m) {
        m.after_probabilities([model = m](Row& row) {
          if (scaled_by_the_mask(model, row)) return;
          for (std::size_t j = 0; j < row.P.size(); ++j)
            row.P[j] = std::exp2(row.S[j] / model.scale - model.safe(row.subtracted) * judge::log2_e);
        });
      },
      [](const Attention& m) { return m.scale > 0; });
  add_maximum(table, "m-of-a-lane", "each lane has a maximum of its own: two shuffles make it that of the quad",
              [](std::size_t lane, std::size_t other) { return lane == other; });
  add_maximum(table, "m-of-half-a-quad", "the maximum is that of two lanes: a shuffle over the quad is missing",
              [](std::size_t lane, std::size_t other) { return lane / 2 == other / 2; });
  for (const std::size_t step : {1, 2})
    add_maximum(
        table, "shuffle-over-rows", shuffled_over_rows, same_after(step), [](Index query) { return query ^ 1; },
        same_after(step));
  add_maximum(
      table, "maximum-shuffled-down",
      "__shfl_down_sync gives the quad's maximum to its first lane alone, and takes lanes of the next quad for the "
      "others: all four need it, by __shfl_xor_sync",
      [](std::size_t lane, std::size_t other) { return lane <= other; },
      [](Index query) { return query % 8 == 7 ? query : query + 1; },
      [](std::size_t lane, std::size_t other) { return other < lane; });
  table.add(
      "m-rows-by-columns",
      "from every second score of a row the m of the other row that a lane has is subtracted: elements 0 and 1 of "
      "a part are its first row, 2 and 3 its second one",
      subtract_by_columns);
  table.add("rescaled-by-the-tile",
            "the factor brings O and l to the maximum of the tile: it must bring them to m, which may have stayed",
            [](Attention& m) {
              m.after_factors(
                  [right = m](Row& row) { row.l_factor = row.O_factor = right.exponential(row.m_old - row.m_tile); });
            });
  return table;
}

/// l of each lane of a quad, from its own columns.
std::array<float, 4> sums_of_lanes(const Attention& right, const Row& row, Index query) {
  std::array<float, 4> l{};
  right.attend(*row.head, query, [&](const Row& step) {
    for (float& x : l) x *= step.l_factor;
    for (std::size_t j = 0; j < step.P.size(); ++j) l[lane_of(Index(j))] += step.P[j];
  });
  return l;
}

/// The sum over the quad at the end. O's columns are divided by the l of the lane that holds them; the LSE is that of
/// the quad's first lane. in_O, in_lse: which of the two has the wrong sum. other_row: as in add_maximum.
template <class Partner>
void add_sum(Table& table, const char* id, const char* sentence, Partner partner, bool in_O = true, Index other_row = 0,
             bool in_lse = true) {
  table.add(id, sentence, [=](Attention& m) {
    m.after_last([=, right = m](Row& row) {
      std::array<float, 4> l = sums_of_lanes(right, row, row.query);
      if (other_row != 0) {
        const std::array<float, 4> others = sums_of_lanes(right, row, row.query ^ other_row);
        for (std::size_t lane = 0; lane < 4; ++lane) l[lane] += others[lane];
      }
      const auto sum_of = [&](std::size_t lane) {
        float sum = 0;
        for (std::size_t other = 0; other < 4; ++other) sum += partner(lane, other) ? l[other] : 0;
        return sum;
      };
      for (std::size_t c = 0; in_O && c < row.O.size(); ++c) row.O[c] *= row.l / sum_of(lane_of(Index(c)));
      if (in_lse) row.l = sum_of(0);
    });
  });
}

Table sums() {
  Table table(&Attention::lanes_own_rows);
  add_sum(table, "l-of-a-lane", "l is that of one lane: it must be added up over the quad, by two shuffles",
          [](std::size_t lane, std::size_t other) { return lane == other; });
  add_sum(table, "l-of-half-a-quad", "l is that of two lanes: the second shuffle over the quad is missing",
          [](std::size_t lane, std::size_t other) { return lane / 2 == other / 2; });
  add_sum(
      table, "lse-of-a-lane", "the LSE takes the l of one lane: it must be the sum over the quad, as for O",
      [](std::size_t lane, std::size_t other) { return lane == other; }, false);
  add_sum(
      table, "O-of-a-lane", "O is divided by the l of one lane: it must be the sum over the quad, as for the LSE",
      [](std::size_t lane, std::size_t other) { return lane == other; }, true, 0, false);
  for (const std::size_t step : {1, 2})
    add_sum(table, "shuffle-over-rows", shuffled_over_rows, same_after(step), true, 1);
  table.add("l-rows-by-columns",
            "l of a lane's first row adds every second P of both of its rows: elements 0 and 1 of a part are its first "
            "row, 2 and 3 its second one",
            [](Attention& m) {
              m.after_sum([right = m, of_other = Steps()](Row& row) mutable {
                const std::vector<float>& others = of_other.at(right, row, row.query ^ 8).P;
                row.sum = 0;
                for (std::size_t j = row.query % 16 < 8 ? 0 : 1; j < row.P.size(); j += 2)
                  row.sum += row.P[j] + at_or_zero(others, j);
              });
            });
  table.add("l-of-exponents", "l adds the exponents S − m: it must add P, their exponentials", [](Attention& m) {
    m.after_sum([right = m](Row& row) {
      row.sum = 0;
      for (const float x : row.S) row.sum += (x - right.safe(row.subtracted)) * judge::log2_e;
    });
  });
  table.add("lse-m-of-the-other-row", "the LSE of a lane's second row takes the m of its first row", [](Attention& m) {
    m.after_last([right = m](Row& row) {
      if (row.query % 16 >= 8) row.m = right.attend(*row.head, row.query ^ 8).m;
    });
  });
  table.add("l-of-the-left-part", "l takes only the first eight of each 16 keys", [](Attention& m) {
    m.after_sum([](Row& row) {
      row.sum = 0;
      for (std::size_t j = 0; j < row.P.size(); ++j) row.sum += in_right_part(j) ? 0 : row.P[j];
    });
  });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "08_registers",
     .uses = {"05_causal"},
     .attention = {{judge::Turn::lanes, in_both, loads()},
                   {judge::Turn::tiles, in_both, stages()},
                   {judge::Turn::lanes, in_both, scores()},
                   {judge::Turn::lanes, in_both, maxima()},
                   {judge::Turn::lanes, in_both, sums()},
                   {judge::Turn::lanes, in_O, outputs()},
                   {judge::Turn::lanes, in_both, names_of_rows()}},
     .claimed = judge::words(
         "late-copies swizzle-conflicts barriers extra-memory matrix-loads narrow-access not-repeatable "
         "order-dependent places-apart places-order places-side-by-side places-transposed products row-without-keys "
         "rows-mixed shared-traffic shuffles slack-ignored tail-not-zeroed traffic uncoalesced "
         "waits-for-all"),
     .without_mutant = {{judge::one_of_a_kind, judge::words("l-of-half-a-quad odd-columns-not-divided")},
                        {judge::one_claim_of_several,
                         judge::words("narrow-access not-repeatable order-dependent products row-without-keys "
                                      "rows-mixed shared-traffic tail-not-zeroed uncoalesced extra-memory")}}});

}  // namespace
}  // namespace workbook::test
