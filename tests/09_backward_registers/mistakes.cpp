// What goes wrong where S and dP are computed transposed and parts of them go from hand to hand, beside the mistakes of
// chapter 6, whose model of a gradient serves here too. In a K/V tile's dQ the rows are queries, in its dK and dV
// keys; `owned` is Bc and `passing` is Br.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/06_backward/mistakes.hpp"

namespace workbook::test {
namespace {

using judge::GradientModel, judge::Index, judge::ln_2, judge::round_down;
using Table = judge::MistakeTable<GradientModel>;
using Place = GradientModel::Place;

constexpr Index side = 16;  // of the operands of mma.m16n8k16, in rows and columns

bool of_queries(const GradientModel& m) {
  return m.of_queries;
}
bool of_keys(const GradientModel& m) {
  return !m.of_queries;
}
/// Where d = 128, two warps share 32 keys, and each has half of the columns.
bool in_teams(const GradientModel& m) {
  return m.d() == 128;
}
/// How many queries a warp forms P and dS of at a time.
Index at_a_time(const GradientModel& m) {
  return m.passing / 2;
}

/// The element of the transpose of the matrix (size, size) that (row, column) lies in.
Place transposed_within(Index size, Index row, Index column) {
  return {round_down(row, size) + column % size, round_down(column, size) + row % size};
}
/// Of a matrix (16, 16): the lower left and the upper right part (8, 8) have changed places.
Place exchanged(Index row, Index column) {
  if ((row % side < 8) == (column % side < 8)) return {row, column};
  return {row ^ 8, column ^ 8};
}
/// The second 16 of each 32 rows are the first.
Index first_of_two(Index row) {
  return round_down(row, 32) + row % side;
}
/// All 16 queries of those that a warp treats at a time are the first.
Index first_queries(Index query, Index at_a_time) {
  return round_down(query, at_a_time) + query % side;
}

/// 9.1: what a query brings.
Table rows() {
  Table table;
  table.add("lse-divided", "the LSE is multiplied by ln 2, not by log2(e)", [](GradientModel& m) {
    m.P = [](double score, double lse, double) { return float(std::exp(score - lse * ln_2 * ln_2)); };
  });
  return table;
}

/// 9.2: S and dP.
Table scores() {
  Table table;
  table.add("first-columns-only", "S and dP are the products of the first 16 columns alone", [](GradientModel& m) {
    m.of_keys_in_scores = [](Index row, Index column) {
      return column < side ? Place{row, column} : GradientModel::nowhere;
    };
  });
  table.add("first-keys-twice", "of each 32 keys the first 16 give S and dP of all", [](GradientModel& m) {
    m.of_keys_in_scores = [](Index row, Index column) { return Place{first_of_two(row), column}; };
  });
  table.add("first-queries-only", "the first 16 of the queries that a warp treats at a time give S and dP of all",
            [](GradientModel& m) {
              m.of_queries_in_scores = [n = at_a_time(m)](Index row, Index column) {
                return Place{first_queries(row, n), column};
              };
            });
  table.add("scores-by-rows",
            "of Q and dO each part is taken the other way round: its rows become the rows of the "
            "right operand, and have to become its columns",
            [](GradientModel& m) {
              m.of_queries_in_scores = [](Index row, Index column) { return transposed_within(side, row, column); };
            });
  table.add(
      "queries-eight-apart",
      "of the queries that a warp treats at a time the second 16 begin eight behind the first: 16 rows are read at a "
      "time",
      [](GradientModel& m) {
        m.of_queries_in_scores = [n = at_a_time(m)](Index row, Index column) {
          return Place{round_down(row, n) + row % n / side * 8 + row % side, column};
        };
      });
  table.add(
      "keys-eight-apart", "of each 32 keys the second 16 begin eight behind the first: 16 rows are read at a time",
      [](GradientModel& m) {
        m.of_keys_in_scores = [](Index row, Index column) { return Place{row % 32 < side ? row : row - 8, column}; };
      });
  table.add("first-columns-again", "all columns of K and V are multiplied with the first 16 of Q and dO",
            [](GradientModel& m) {
              m.of_queries_in_scores = [](Index row, Index column) { return Place{row, column % side}; };
            });
  table.add("first-columns-again", "all columns of Q and dO are multiplied with the first 16 of K and V",
            [](GradientModel& m) {
              m.of_keys_in_scores = [](Index row, Index column) { return Place{row, column % side}; };
            });
  return table;
}

/// 9.3: P and dS. (i, j): a query and a key.
Table P_and_dS() {
  Table table;
  table.add("first-pair-of-queries", "of each eight queries all take the LSE and D of the first two",
            [](GradientModel& m) { m.query_of = [](Index i, Index) { return round_down(i, 8) + i % 2; }; });
  table.add(
      "rows-as-columns", "a lane takes the LSE and D of the queries that are its rows' numbers: a row is a key here",
      [](GradientModel& m) { m.query_of = [](Index i, Index j) { return round_down(i, 8) + j % 8 / 2 * 2 + i % 2; }; });
  table.add("lse-of-the-even-query", "of two neighbouring queries both take the LSE of the first",
            [](GradientModel& m) {
              m.query_of_D = m.query_of;
              m.query_of = [](Index i, Index) { return round_down(i, 2); };
            });
  table.add(
      "D-of-the-even-query", "of two neighbouring queries both take the D of the first",
      [](GradientModel& m) { m.query_of_D = [](Index i, Index) { return round_down(i, 2); }; },
      [](const GradientModel& m) { return !m.of_values; });
  // Element e lies in the lane's second row, eight keys further down, where e / 2 is 1.
  const auto by_its_row = [](Index i, Index j) { return round_down(i, 2) + j % side / 8; };
  table.add("query-by-its-row",
            "of two neighbouring queries the upper eight of 16 keys take the LSE of the first, and the lower eight "
            "that of the second: an element's query is its column, e % 2; e / 2 is its row, a key",
            [=](GradientModel& m) { m.query_of_D = m.query_of, m.query_of = by_its_row; });
  table.add(
      "query-by-its-row",
      "of two neighbouring queries the upper eight of 16 keys take the D of the first, and the lower eight that of the "
      "second: an element's query is its column, e % 2; e / 2 is its row, a key",
      [=](GradientModel& m) { m.query_of_D = by_its_row; }, [](const GradientModel& m) { return !m.of_values; });
  table.add(
      "query-by-its-row",
      "of two neighbouring queries the upper eight of 16 keys take the LSE and D of the first, and the lower eight "
      "those of the second: an element's query is its column, e % 2; e / 2 is its row, a key",
      [=](GradientModel& m) { m.query_of = by_its_row; }, [](const GradientModel& m) { return !m.of_values; });
  table.add("scores-not-multiplied", "the scores are not multiplied by `scale`, which holds 1/√d and log2(e)",
            [](GradientModel& m) { m.score_scale = float(ln_2); });
  return table;
}

/// 9.3: pairs that do not count, in blocks that hold some that do.
Table uncounted() {
  Table table([](const GradientModel& m) { return m.tiled() && m.inputs->problem.mask.kind != Mask::none; });
  table.add("gradient-pairs-multiplied", ch06::pairs_multiplied, [](GradientModel& m) {
    const Setting& given = m.inputs->problem;
    const Index columns = (m.Nk() + m.owned - 1) / m.owned;
    std::vector<bool> visited(std::size_t((m.Nq() + m.passing - 1) / m.passing * columns));
    const auto block = [columns, Br = m.passing, Bc = m.owned](Index i, Index j) {
      return std::size_t(i / Br * columns + j / Bc);
    };
    for (Index i = 0; i < m.Nq(); ++i)
      given.mask.for_keys(given.shape, i, [&](Index j) { visited[block(i, j)] = true; });
    ch06::multiply_uncounted(m, [=](Index i, Index j) { return visited[block(i, j)]; });
  });
  return table;
}

/// A Q tile and a K/V tile, from the keys' side.
struct Blocks {
  Index query, key;  ///< the first of each
  Index diagonal;    ///< query i sees the keys of the K/V tile up to i + diagonal, numbered from its first one on
  Index Br, Bc;

  Blocks(const GradientModel& m, Index i, Index j)
      : query(round_down(i, m.passing)),
        key(round_down(j, m.owned)),
        diagonal(m.offset() - key),
        Br(m.passing),
        Bc(m.owned) {}
  /// Whether the Q tile is loaded, and whether it is masked.
  bool visited() const { return query / Br >= std::max<Index>(0, -diagonal) / Br; }
  bool masked(const GradientModel& m) const { return m.Nk() - key < Bc || query + diagonal < Bc - 1; }
};

/// 9.4: the mask. `sees`: whether query i of a masked Q tile sees key j.
Table masks() {
  const auto sees = [](auto sees_if_masked) {
    return [=](GradientModel& m) {
      m.sees = [=, right = m](Index i, Index j) {
        const Blocks at(right, i, j);
        return at.visited() && (!at.masked(right) || sees_if_masked(at, i, j));
      };
    };
  };
  Table table(&GradientModel::causal);
  table.add("first-row-block-left-out",
            "Q tiles begin with the first query that sees a key, rounded up: the Q tile that it lies in is left out",
            [](GradientModel& m) {
              m.sees = [right = m](Index i, Index j) {
                const Blocks at(right, i, j);
                return right.sees(i, j) && at.query >= std::max<Index>(0, -at.diagonal);
              };
            });
  table.add("diagonal-of-the-block", "the diagonal is counted from the K/V tile's first key, not from the warp's",
            sees([](const Blocks& at, Index i, Index j) { return (j - at.key) % 32 <= i + at.diagonal; }));
  table.add(
      "diagonal-of-the-row-block",
      "the diagonal is counted from the Q tile's first query, not from the first that P is formed of",
      sees([](const Blocks& at, Index i, Index j) { return j - at.key <= at.query + i % (at.Br / 2) + at.diagonal; }));
  table.add(
      "dS-not-masked",
      "P of a pair that does not count is 0, and its dS is not: it has to be made of the P that is 0, or be 0 itself",
      sees([](const Blocks&, Index, Index) { return true; }), [](const GradientModel& m) { return !m.of_values; });
  return table;
}

/// 9.5: the products for dV and dK. Their left operand is Pᵀ or dSᵀ, whose rows are keys.
Table products() {
  Table table(of_keys);
  table.add(
      "first-queries-again",
      "{P} of all queries is multiplied with the rows of the first 16 that a warp treats at a time",
      [](GradientModel& m) { m.right_row = [n = at_a_time(m)](Index other) { return first_queries(other, n); }; });
  table.add("first-keys-again", "of each 32 keys the first 16 give {gradient} of all", [](GradientModel& m) {
    m.in_left = [](Index i, Index j, int) { return Place{i, first_of_two(j)}; };
  });
  table.add("right-by-columns",
            "of what {P} is multiplied with each part is taken the other way round: its rows become columns",
            [](GradientModel& m) {
              m.in_right = [](Index row, Index column) { return transposed_within(side, row, column); };
            });
  table.add("first-columns-for-all", "all of a warp's columns of {gradient} are its first 16", [](GradientModel& m) {
    m.in_right = [](Index row, Index column) { return Place{row, round_down(column, 64) + column % side}; };
  });
  table.add("first-queries-alone", "only the first 16 of the queries that a warp treats at a time count",
            [](GradientModel& m) { m.counts = [n = at_a_time(m)](Index, Index other) { return other % n < side; }; });
  return table;
}

/// 9.5: the operands that P and dS become, for all products.
Table operands() {
  Table table;
  table.add(
      "operand-parts-exchanged",
      "of each operand of Pᵀ and dSᵀ the lower left and the upper right part have changed places: registers 1 and 2",
      [](GradientModel& m) { m.in_left = [](Index i, Index j, int) { return exchanged(i, j); }; });
  table.add("right-rows-overlap",
            "the rows that operand k of Pᵀ and dSᵀ is multiplied with begin at 8k of those at a time: it must be 16k",
            [](GradientModel& m) {
              m.right_row = [n = at_a_time(m)](Index other) {
                return round_down(other, n) + other % n / 16 * 8 + other % 16;
              };
            });
  table.add("operand-parts-overlap", "operand k of Pᵀ and dSᵀ is made of the parts k and k + 1: they are 2k and 2k + 1",
            [](GradientModel& m) {
              m.in_left = [n = at_a_time(m)](Index i, Index j, int) {
                const Index part = i % n / 8;
                return Place{round_down(i, n) + (part / 2 + part % 2) * 8 + i % 8, j};
              };
            });
  table.add("operand-pairs-swapped",
            "the two numbers of each register of Pᵀ and dSᵀ have changed places: the first belongs in its lower half",
            [](GradientModel& m) { m.in_left = [](Index i, Index j, int) {
                                     return Place{i ^ 1, j};
                                   }; });
  return table;
}

/// 9.6: what a team of two exchanges. A warp has the P and dS of its own half of the queries, and takes the other's.
Table exchange() {
  const auto taken = [](auto place) {
    return [=](GradientModel& m) {
      m.in_left = [=, n = at_a_time(m)](Index i, Index j, int half) {
        return i / n % 2 == half ? Place{i, j} : place(i, j, n);
      };
    };
  };
  Table table([](const GradientModel& m) { return of_keys(m) && in_teams(m); });
  table.add(
      "exchanged-parts",
      "of what a warp takes from the other one of its team the lower left and the upper right part of each operand "
      "have changed places: lanes name the rows as load_A's do",
      taken([](Index i, Index j, Index) { return exchanged(i, j); }));
  table.add("exchanged-first-queries",
            "of what a warp takes from the other one of its team the first 16 queries come for all",
            taken([](Index i, Index j, Index n) {
              return Place{first_queries(i, n), j};
            }));
  table.add("exchanged-first-keys",
            "of what a warp takes from the other one of its team the first 16 keys come for all",
            taken([](Index i, Index j, Index) {
              return Place{i, first_of_two(j)};
            }));
  return table;
}

/// 9.6 and 9.7: dQ, whose left operand is dS as it comes from shared memory; and 9.9, which adds it.
Table dQ() {
  Table table(of_queries);
  table.add(
      "exchanged-parts",
      "of dS as dQ takes it the lower left and the upper right part of each operand have changed places, on the way "
      "into shared memory or out of it",
      [](GradientModel& m) { m.in_left = [](Index i, Index j, int) { return exchanged(i, j); }; });
  table.add(
      "not-transposed-in-parts",
      "of each 32 queries the first 16 take the parts (8, 8) of dS as they lie in shared memory: a row there is a key",
      [](GradientModel& m) {
        m.in_left = [](Index i, Index j, int) { return i % 32 < side ? transposed_within(8, i, j) : Place{i, j}; };
      });
  table.add("last-keys-left-out", "the last 16 keys of each K/V tile have no part in dQ",
            [](GradientModel& m) { m.counts = [Bc = m.owned](Index, Index key) { return key % Bc < Bc - side; }; });
  table.add(
      "first-keys-in-dQ", "dS of all keys is multiplied with the first 16 rows of K of the K/V tile",
      [](GradientModel& m) { m.right_row = [Bc = m.owned](Index key) { return round_down(key, Bc) + key % side; }; });
  table.add(
      "dS-eight-apart", "of each 32 queries the second 16 begin eight behind the first in dS: two chunks lie between",
      [](GradientModel& m) { m.in_left = [](Index i, Index j, int) {
                               return Place{i % 32 < side ? i : i - 8, j};
                             }; });
  table.add("first-queries-in-dQ", "of each 32 queries the first 16 give dQ of all", [](GradientModel& m) {
    m.in_left = [](Index i, Index j, int) { return Place{first_of_two(i), j}; };
  });
  table.add("one-place-in-the-sum",
            "all parts of 16 rows of dQ are added to one: every eighth column has the same place",
            [](GradientModel& m) {
              m.sums_to = [](Index, std::vector<double>& sums) {
                for (std::size_t c = 8; c < sums.size(); ++c) sums[c % 8] += sums[c];
                for (std::size_t c = 8; c < sums.size(); ++c) sums[c] = sums[c % 8];
              };
            });
  table.add("last-row-block-not-added", "dQ of the last Q tile is not added: nobody comes after it",
            [](GradientModel& m) {
              m.counts = [first = round_down(m.Nq() - 1, m.passing)](Index query, Index) { return query < first; };
            });
  table.add("half-of-the-warps", "the second half of the warps adds its columns of dQ for the last Q tile only",
            [](GradientModel& m) {
              m.sums_to = [last = round_down(m.Nq() - 1, m.passing)](Index query, std::vector<double>& sums) {
                if (query < last) std::fill(sums.begin() + std::ptrdiff_t(sums.size() / 2), sums.end(), 0.0);
              };
            });
  return table;
}

Table gradients() {
  Table table;
  for (const Table& part :
       {rows(), scores(), P_and_dS(), uncounted(), masks(), operands(), products(), exchange(), dQ()})
    table.add(part);
  return table;
}

const judge::Declared declared(
    {.chapter = "09_backward_registers",
     .uses = {"06_backward"},
     .gradients = gradients(),
     .claimed = judge::words("late-copies barriers dlse-added dlse-left-out dlse-of-the-first-head extra-memory "
                             "future-leaks masked-too-little "
                             "masked-too-much matrix-loads matrix-stores not-repeatable order-dependent products "
                             "shared-traffic swizzle-conflicts tiles-not-skipped tiles-skipped traffic "
                             "turn-not-waited turn-without-fence turn-without-syncwarp turns uncoalesced"),
     .without_mutant = {
         {judge::one_claim_of_several, judge::words("extra-memory future-leaks not-repeatable order-dependent "
                                                    "products shared-traffic")}}});

}  // namespace
}  // namespace workbook::test
