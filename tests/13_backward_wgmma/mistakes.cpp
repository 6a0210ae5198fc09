// What goes wrong where the backward pass is divided between a producer, two consumers and a writer, beside the
// mistakes of chapter 9. In dQ's model the rows are queries, in dK's and dV's keys; `owned` is Bc and `passing` is Br.
// A consumer has 64 keys of 128; of dQ it forms 64 rows where d = 64, and 64 columns where d = 128.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/judge/mistakes.hpp"

namespace workbook::test {
namespace {

using judge::GradientModel, judge::Index, judge::round_down;
using Table = judge::MistakeTable<GradientModel>;
using Place = GradientModel::Place;

bool of_queries(const GradientModel& m) {
  return m.of_queries;
}
bool of_keys(const GradientModel& m) {
  return !m.of_queries;
}

/// 13.1 and 13.3: S, P and dS. (i, j): a query and a key.
Table scores() {
  Table table;
  table.add("first-64-columns", "for d = 128 the second section, columns 64 to 127, has no part in S and dP",
            [](GradientModel& m) {
              m.of_keys_in_scores = [](Index row, Index column) {
                return column < 64 ? Place{row, column} : GradientModel::nowhere;
              };
            });
  table.add("columns-one-behind", "the first 16 columns have twice their part in S and dP, and the last 16 none",
            [](GradientModel& m) {
              m.of_keys_in_scores = m.of_queries_in_scores = [](Index row, Index column) {
                return Place{row, column < 16 ? column : column - 16};
              };
            });
  table.add("first-columns-twice",
            "the first 16 columns have twice their part in S and dP: their product is issued once more",
            [](GradientModel& m) { m.times_in_scores = [](Index column) { return column < 16 ? 2.0F : 1.0F; }; });
  // Of one operand alone.
  for (auto GradientModel::*operand : {&GradientModel::of_keys_in_scores, &GradientModel::of_queries_in_scores}) {
    const bool of_keys_alone = operand == &GradientModel::of_keys_in_scores;
    table.add("columns-not-the-same",
              of_keys_alone ? "16 columns of Q and dO meet other columns of K and V: those before them"
                            : "16 columns of K and V meet other columns of Q and dO: those before them",
              [=](GradientModel& m) {
                m.*operand = [](Index row, Index column) { return Place{row, column < 16 ? column : column - 16}; };
              });
  }
  table.add("consumer-0-keys", "both consumers form S and dP of the first 64 keys", [](GradientModel& m) {
    m.of_keys_in_scores = [](Index row, Index column) { return Place{round_down(row, 128) + row % 64, column}; };
  });
  table.add("block-0-keys", "every K/V tile takes the keys and values of the first", [](GradientModel& m) {
    m.of_keys_in_scores = [](Index row, Index column) { return Place{row % 128, column}; };
    if (m.of_queries) m.right_row = [](Index key) { return key % 128; };
  });
  table.add("lse-for-D", "of each query the LSE, in units of log2, comes in the place of D", [](GradientModel& m) {
    m.D = [in = m.inputs](Index head, Index i) {
      return in->saved.lse.values[std::size_t(head * in->problem.shape.Nq + i)] / judge::ln_2;
    };
  });
  table.add("lse-of-first-half", "P of the second half of a Q tile's queries is formed with the LSE of the first half",
            [](GradientModel& m) {
              m.query_of_D = m.query_of;
              m.query_of = [Br = m.passing](Index i, Index) { return i % Br < Br / 2 ? i : i - Br / 2; };
            });
  table.add("first-line", "every Q tile takes the LSE and D of the head's first queries",
            [](GradientModel& m) { m.query_of = [Br = m.passing](Index i, Index) { return i % Br; }; });
  return table;
}

/// 13.4: the mask.
Table masks() {
  Table table(&GradientModel::causal);
  for (const Index early : {8, 16})
    table.add("border-early", "eights of queries are passed over of which some do not see all of a warp's 16 keys",
              [=](GradientModel& m) {
                m.sees = [=, right = m](Index i, Index j) {
                  const Index visible = i + right.offset() + 1, eight = round_down(i, 8) + right.offset() + 1;
                  return j < visible || round_down(j, 16) + 16 <= eight + early;
                };
              });
  table.add("mask-inverted", "P becomes 0 where a query sees the key, and stays where it does not",
            [](GradientModel& m) {
              m.sees = [right = m](Index i, Index j) {
                const Index visible = i + right.offset() + 1, eight = round_down(i, 8) + right.offset() + 1;
                return round_down(j, 16) + 16 <= eight || j >= visible;
              };
            });
  table.add("mask-one-fewer", "the causal mask is off by one: a query does not see its own key", [](GradientModel& m) {
    m.sees = [right = m](Index i, Index j) {
      const Index visible = i + right.offset() + 1, eight = round_down(i, 8) + right.offset() + 1;
      return j + 1 < visible || (j < visible && round_down(j, 16) + 16 <= eight);
    };
  });
  return table;
}

/// 13.2: which queries come, if causal: those of Q tile i where i is to be counted from the first one on that sees a
/// key of the K/V tile. All else takes them for the right ones.
Table queries() {
  Table table(&GradientModel::causal);
  table.add("queries-from-the-first",
            "the Q tiles of queries that come begin with the head's first one: they have to begin with the first "
            "one that the K/V tile needs",
            [](GradientModel& m) {
              const auto passed_over = [Nq = m.Nq(), offset = m.offset(), Bc = m.owned, Br = m.passing](Index j) {
                return std::min(std::max<Index>(0, round_down(j, Bc) - offset) / Br, (Nq - 1) / Br) * Br;
              };
              m.sees = [=, end = (m.Nq() + m.passing - 1) / m.passing * m.passing, offset = m.offset()](Index i,
                                                                                                        Index j) {
                const Index taken_for = i + passed_over(j);
                return taken_for < end && j <= taken_for + offset;
              };
              if (m.of_queries) m.in_left = [=](Index i, Index j, int) { return Place{i - passed_over(j), j}; };
            });
  return table;
}

/// 13.5: dK and dV.
Table products() {
  Table table(of_keys);
  table.add("second-half-again",
            "{P} of the second half of a Q tile's queries is multiplied with the rows of its first half",
            [](GradientModel& m) {
              m.right_row = [Br = m.passing](Index other) { return round_down(other, Br) + other % (Br / 2); };
            });
  table.add(
      "first-half-of-P-again",
      "P of the second half of a Q tile's queries is that of the first half: S holds the numbers of all of them",
      [](GradientModel& m) {
        m.in_left = [Br = m.passing](Index i, Index j, int) { return Place{i % Br < Br / 2 ? i : i - Br / 2, j}; };
      },
      [](const GradientModel& m) { return m.of_values && m.d() == 128; });
  table.add(
      "last-half-only",
      "each call of start_accumulate begins the sums anew: of dV the last half of the last Q tile is left, of dK all "
      "of it",
      [](GradientModel& m) {
        const Index last = round_down(m.Nq() - 1, m.passing) + (m.of_values ? m.passing / 2 : 0);
        m.counts = [last](Index, Index query) { return query >= last; };
      },
      [](const GradientModel& m) { return m.d() == 128; });
  table.add("first-16-queries", "{P} of all queries of a Q tile is multiplied with the rows of its first 16",
            [](GradientModel& m) {
              m.right_row = [Br = m.passing](Index other) { return round_down(other, Br) + other % 16; };
            });
  return table;
}

/// 13.5: the operands that P and dS become. Of 16 queries a thread has for its key, and for the one eight rows below,
/// two neighbouring queries of the first eight, then of the second: eight elements.
Table operands() {
  Table table;
  table.add("operand-pairs-apart",
            "a register of Pᵀ and dSᵀ holds an element and the one four behind it: it has to hold two neighbours",
            [](GradientModel& m) {
              m.in_left = [](Index i, Index j, int) {
                const Index element = i % 16 / 8 * 4 + j % 16 / 8 * 2 + i % 2, taken = element / 2 + i % 2 * 4;
                return Place{round_down(i, 16) + taken / 4 * 8 + i % 8 / 2 * 2 + taken % 2,
                             round_down(j, 16) + taken / 2 % 2 * 8 + j % 8};
              };
            });
  return table;
}

/// 13.6 and 13.7: dQ.
Table dQ() {
  Table table(of_queries);
  table.add("parts-not-transposed",
            "each part (8, 8) of dS lies in shared memory as the registers hold it: a row there has to be a query",
            [](GradientModel& m) {
              m.in_left = [](Index i, Index j, int) {
                return Place{round_down(i, 8) + j % 8, round_down(j, 8) + i % 8};
              };
            });
  table.add("dS-swizzled-on-one-side",
            "dS is stored without a swizzle: chunk c of row r has to lie at c ^ r % 8, where wgmma looks for it",
            [](GradientModel& m) {
              m.in_left = [](Index i, Index j, int) {
                return Place{i, round_down(j, 64) + ((j % 64 / 8) ^ (i % 8)) * 8 + j % 8};
              };
            });
  table.add("same-half-of-dQ", "both consumers form the same half of dQ: rows 0 to 63 for d = 64, columns for d = 128",
            [](GradientModel& m) {
              if (m.d() == 64) {
                m.in_left = [](Index i, Index j, int) { return Place{round_down(i, 128) + i % 64, j}; };
              } else {
                m.in_right = [](Index row, Index column) { return Place{row, column % 64}; };
              }
            });
  table.add("halves-at-one-place", "both consumers' halves of dQ are added in the place of the first",
            [](GradientModel& m) {
              m.moved = [](Tensor<double>& dQ) {
                const Index rows = dQ.sizes[2], d = dQ.sizes[3];
                for (Index at = 0; at < Index(dQ.values.size()); ++at) {
                  const Index row = at / d % rows, column = at % d;
                  const bool of_second = d == 64 ? row % 128 >= 64 : column >= 64;
                  if (of_second) dQ.values[std::size_t(at - (d == 64 ? 64 * d : 64))] += dQ.values[std::size_t(at)];
                  if (of_second) dQ.values[std::size_t(at)] = 0;
                }
              };
            });
  table.add(
      "fours-together",
      "a thread's eight fours of dQ lie side by side in the sum: those of all 128 threads come first, then the next "
      "of each",
      [](GradientModel& m) {
        m.moved = [](Tensor<double>& dQ) {
          const Tensor<double> right = dQ;
          const Index d = dQ.sizes[3], Nq = dQ.sizes[2];
          for (Index at = 0; at < Index(dQ.values.size()); ++at) {
            // The half of a Q tile (64, 64) that the element lies in, its thread and the number there.
            const Index row = at / d % Nq, column = at % d, r = row % 64, c = column % 64;
            const Index thread = r / 16 * 32 + r % 8 * 4 + c % 8 / 2, element = c / 8 * 4 + r % 16 / 8 * 2 + c % 2;
            const Index four = element / 4 * 128 + thread, of = four / 8, e = four % 8 * 4 + element % 4;
            const Index from = round_down(row, 64) + of / 32 * 16 + e % 4 / 2 * 8 + of % 32 / 4;
            const Index from_column = round_down(column, 64) + e / 4 * 8 + of % 4 * 2 + e % 2;
            dQ.values[std::size_t(at)] =
                from < Nq ? right.values[std::size_t((at / d - row + from) * d + from_column)] : 0;
          }
        };
      });
  table.add("halves-exchanged", "each consumer's half of dQ is added where the other's belongs", [](GradientModel& m) {
    if (m.d() == 64) {
      m.in_left = [](Index i, Index j, int) { return Place{i ^ 64, j}; };
    } else {
      m.in_right = [](Index row, Index column) { return Place{row, column ^ 64}; };
    }
  });
  return table;
}

Table gradients() {
  Table table;
  for (const Table& part : {scores(), masks(), queries(), operands(), products(), dQ()}) table.add(part);
  return table;
}

const judge::Declared declared({.chapter = "13_backward_wgmma",
                                .uses = {"09_backward_registers", "11_wgmma"},
                                .gradients = gradients(),
                                .claimed = judge::words("waits-early dQ-added out-of-turn"),
                                .without_mutant = {}});

}  // namespace
}  // namespace workbook::test
