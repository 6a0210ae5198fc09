// What goes wrong where a row of S lies in the four lanes of a quad, and its keys in parts of eight.
#include <array>
#include <memory>

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

Table scores() {
  Table table(&Attention::lanes_own_rows);
  table.add("first-eight-keys-twice", "of each 16 keys the first eight give the scores of all 16", [](Attention& m) {
    m.after_scores([right = m](Row& row) {
      for (std::size_t j = 8; j < row.S.size(); ++j)
        if (in_right_part(j) && row.S[j] > -judge::infinity)
          row.S[j] = right.score(*row.head, row.query, row.first + Index(j) - 8);
    });
  });
  return table;
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
  table.add("odd-columns-not-divided", "every second column of O is not divided by l", [](Attention& m) {
    m.after_last([](Row& row) {
      for (std::size_t c = 1; c < row.O.size(); c += 2) row.O[c] *= row.l;
    });
  });
  return table;
}

/// The sum over the quad at the end. O's columns are divided by the l of the lane that holds them; the LSE is that of
/// the quad's first lane.
template <class Partner>
void add_sum(Table& table, const char* id, const char* sentence, Partner partner) {
  table.add(id, sentence, [=](Attention& m) {
    const auto l = std::make_shared<std::array<float, 4>>();
    m.after_sum([=](Row& row) {
      if (row.number == 0) *l = {};
      for (float& x : *l) x *= row.l_factor;
      for (std::size_t j = 0; j < row.P.size(); ++j) (*l)[lane_of(Index(j))] += row.P[j];
    });
    m.after_last([=](Row& row) {
      const auto sum_of = [&](std::size_t lane) {
        float sum = 0;
        for (std::size_t other = 0; other < 4; ++other) sum += partner(lane, other) ? (*l)[other] : 0;
        return sum;
      };
      for (std::size_t c = 0; c < row.O.size(); ++c) row.O[c] *= row.l / sum_of(lane_of(Index(c)));
      row.l = sum_of(0);
    });
  });
}

Table sums() {
  Table table(&Attention::lanes_own_rows);
  add_sum(table, "l-of-a-lane", "l is that of one lane: it must be added up over the quad, by two shuffles",
          [](std::size_t lane, std::size_t other) { return lane == other; });
  add_sum(table, "l-of-half-a-quad", "l is that of two lanes: the second shuffle over the quad is missing",
          [](std::size_t lane, std::size_t other) { return lane / 2 == other / 2; });
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
     .attention = {{judge::Turn::lanes, in_both, scores()},
                   {judge::Turn::lanes, in_both, sums()},
                   {judge::Turn::lanes, in_O, outputs()}},
     .claimed = judge::words("swizzle-conflicts barriers extra-memory matrix-loads narrow-access not-repeatable "
                             "order-dependent places-apart places-order places-transposed products row-without-keys "
                             "rows-mixed shared-traffic shuffles slack-ignored tail-not-zeroed traffic uncoalesced"),
     .without_mutant = {{judge::one_of_a_kind, judge::words("l-of-half-a-quad odd-columns-not-divided")},
                        {judge::one_claim_of_several,
                         judge::words("narrow-access not-repeatable order-dependent products row-without-keys "
                                      "rows-mixed shared-traffic tail-not-zeroed traffic uncoalesced extra-memory")}}});

}  // namespace
}  // namespace workbook::test
