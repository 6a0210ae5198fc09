// What goes wrong with fragments, in half precision, and where warps split the keys of a tile; and in the warm-ups.
#include "tests/03_tiled_wmma/mistakes.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

namespace workbook::test::ch03 {
namespace {

using ch01::Attention;
using judge::Index, judge::infinity, judge::Range, judge::round_down, judge::Row;
using Table = ch01::AttentionTable;

/// 16 × 16 pieces of a tensor are read with rows and columns exchanged; a tile is filled up with zeros.
Index exchanged_in_fragments(const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
  const Index row_read = row / 16 * 16 + column % 16;
  return row_read < tensor.sizes[2] ? Index(tensor.index(b, h, row_read, column / 16 * 16 + row % 16)) : -1;
}
bool whole_fragments(const Attention& m) {
  return m.d() % 16 == 0;
}

Table scores() {
  const auto several_fragments = [](const Attention& m) { return m.d() > 16; };
  Table table;
  table.add(
      "no-scale", "exp2 is given scores without the scale 1/√d and without the factor log2(e)",
      [](Attention& m) { m.scale = judge::ln_2; }, [](const Attention& m) { return m.scale != 0; });
  table.add(
      "QK-first-fragment", "QKᵀ sums only the first 16 of the d columns",
      [](Attention& m) {
        m.features = {0, 16};
      },
      several_fragments);
  table.add(
      "QK-first-half", "QKᵀ sums only the first half of the d columns",
      [](Attention& m) {
        m.features = {0, m.d() / 2};
      },
      [](const Attention& m) { return m.d() > 32; });
  table.add(
      "Q-first-fragment", "all columns of K are multiplied with the first 16 of Q",
      [](Attention& m) {
        m.Q = [](const Tensor<float>& Q, Index b, Index h, Index row, Index column) {
          return Index(Q.index(b, h, row, column % 16));
        };
      },
      several_fragments);
  table.add(
      "QK-last-fragment", "QKᵀ sums only the last 16 of the d columns: the accumulator is cleared in every step",
      [](Attention& m) {
        m.features = {m.d() - 16, m.d()};
      },
      several_fragments);
  table.add(
      "K-fragments-row-major",
      "the 16 × 16 fragments of K are not transposed: as the right factor of QKᵀ they are col_major",
      [](Attention& m) { m.K = exchanged_in_fragments; }, whole_fragments);
  const auto keys_of_warp = [](const Attention& m) {
    return m.tiling.key_warps > 0 ? m.tiling.Bc / m.tiling.key_warps : m.step;
  };
  table.add(
      "K-first-16-keys",
      "each 16 keys that are multiplied are the first 16 again: the row of K is that of the loop over the keys",
      [=](Attention& m) {
        m.K = [keys = keys_of_warp(m)](const Tensor<float>& K, Index b, Index h, Index row, Index column) {
          return Index(K.index(b, h, round_down(row, keys) + row % keys % 16, column));
        };
      },
      [=](const Attention& m) { return m.tiled() && keys_of_warp(m) > 16; });
  table.add(
      "accumulators-kept",
      "a warp's accumulators are not cleared before its second 16 keys: their scores add to the first",
      [](Attention& m) {
        m.after_scores([right = m](Row& row) {
          for (Index j = 16; j < row.keys; ++j)
            if (right.warp_of(j) == right.warp_of(j - 16)) row.S[std::size_t(j)] += row.S[std::size_t(j - 16)];
        });
      },
      [](const Attention& m) { return m.tiling.key_warps > 0 && m.tiling.Bc / m.tiling.key_warps > 16; });
  return table;
}

/// A tile that the block's threads load in several passes, 16 bytes per thread and pass.
Table loads() {
  const auto rows_per_pass = [](const Attention& m) { return m.tiling.key_warps * 32 / (m.d() / 8); };
  Table table([](const Attention& m) { return m.tiling.key_warps > 0 && m.d() >= 8; });
  table.add("first-rows-again",
            "every pass stores to the same rows of the tile; pass i must store to row first_row + i",
            [=](Attention& m) {
              const auto of_tiles = [at_once = rows_per_pass(m)](Index tile) {
                return [=](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
                  return Index(tensor.index(b, h, round_down(row, tile) + row % tile % at_once, column));
                };
              };
              m.Q = of_tiles(m.tiling.Br), m.K = m.V = of_tiles(m.tiling.Bc);
            });
  return table;
}

/// Warps that split the keys of a tile, and what of theirs is not combined. Elements of a step are keys of a tile.
template <class Element>
float of_warps(const Attention& m, const Row& row, Range warps, float none, const Element& combined) {
  float result = none;
  for (Index j = 0; j < Index(row.S.size()); ++j)
    if (warps.contains(m.warp_of(j))) result = combined(result, std::size_t(j));
  return result;
}
Table warps() {
  const auto maximum_of = [](auto which) {
    return [=](Attention& m) {
      m.after_maximum([right = m, warps = which(m.tiling.key_warps)](Row& row) {
        right.raise(
            row, of_warps(right, row, warps, -infinity, [&](float x, std::size_t j) { return std::max(x, row.S[j]); }));
      });
    };
  };
  const auto sum_of = [](auto which) {
    return [=](Attention& m) {
      m.after_sum([right = m, warps = which(m.tiling.key_warps)](Row& row) {
        row.sum = of_warps(right, row, warps, 0, [&](float x, std::size_t j) { return x + row.P[j]; });
      });
    };
  };
  const auto product_of = [](auto which) {
    return [=](Attention& m) {
      m.after_weights([right = m, warps = which(m.tiling.key_warps)](Row& row) {
        for (Index j = 0; j < row.keys; ++j)
          if (!warps.contains(right.warp_of(j))) row.weights[std::size_t(j)] = 0;
      });
    };
  };
  const auto first = [](Index) { return Range{0, 1}; };
  const auto all_but_first = [](Index count) { return Range{1, count}; };
  const auto all_but_last = [](Index count) { return Range{0, count - 1}; };
  const auto more_than_two = [](const Attention& m) { return m.tiling.key_warps > 2; };

  Table table([](const Attention& m) { return m.tiling.key_warps > 1; });
  table.add("warp-own-maximum",
            "each warp subtracts the maximum of its own keys: their P, l and O are then not relative to the same m",
            [](Attention& m) {
              const std::vector<float> none(std::size_t(m.tiling.key_warps), -infinity);
              m.after_probabilities([right = m, own = none](Row& row) mutable {
                if (row.number == 0) std::ranges::fill(own, -infinity);
                const auto maximum = [&](std::size_t j) -> float& { return own[std::size_t(right.warp_of(Index(j)))]; };
                for (std::size_t j = 0; j < row.S.size(); ++j) maximum(j) = std::max(maximum(j), row.S[j]);
                for (std::size_t j = 0; j < row.S.size(); ++j)
                  row.P[j] = right.exponential(row.S[j] - right.safe(maximum(j)));
                row.m = own[0];  // what is kept is warp 0's
              });
            });
  // Keys of the following warps are masked.
  table.add(
      "padding-counted",
      "keys beyond Nk count with a score of 0 in the warp in whose keys the end lies: their score must be −∞",
      [](Attention& m) {
        m.after_scores([keys = m.tiling.Bc / m.tiling.key_warps](Row& row) {
          if (row.last) row.S.resize(std::size_t(judge::round_up(row.keys, keys)), 0);
        });
      },
      [](const Attention& m) { return m.Nk() % (m.tiling.Bc / m.tiling.key_warps) != 0; });
  table.add("warp-maximum-ignored", "the new maximum leaves out keys of the last warp, whose P then overflows",
            maximum_of(all_but_last));
  table.add("warp-maximum-ignored", "the new maximum leaves out keys of the first warp, whose P then overflows",
            maximum_of(all_but_first));
  table.add("warp-maximum-ignored", "the new maximum is that of the first warp's keys alone", maximum_of(first));
  table.add("m-of-first-warp",
            "only the first warp keeps the new m: the others compare each tile with what they began with",
            [](Attention& m) {
              m.after_probabilities([right = m](Row& row) {
                for (Index j = 0; j < Index(row.P.size()); ++j)
                  if (right.warp_of(j) > 0)
                    row.P[std::size_t(j)] = right.exponential(row.S[std::size_t(j)] - right.safe(row.m_tile));
              });
            });
  table.add("warp-sum-alone", "l adds the sum of the first warp's keys alone, not of all warps'", sum_of(first));
  table.add("warp-sum-dropped", "l leaves out the sum of the last warp's keys", sum_of(all_but_last), more_than_two);
  table.add("warp-product-alone", "O adds the first warp's PV alone, not all warps'", product_of(first));
  table.add("warp-product-alone", "each thread adds the PV of its own warp for every warp, not each warp's once",
            [](Attention& m) {
              m.after_weights([right = m](Row& row) {
                const Index warps = right.tiling.key_warps, rows_of_warp = 32 * 4 / right.d();
                const Index own = row.query % right.tiling.Br / rows_of_warp % warps;
                for (Index j = 0; j < row.keys; ++j)
                  row.weights[std::size_t(j)] *= right.warp_of(j) == own ? float(warps) : 0;
              });
            });
  table.add(
      "O-rescaled-for-each-warp",
      "O is rescaled before each warp's PV is added, and with it the PV of the warps before: once for all of them",
      [](Attention& m) {
        m.after_weights([right = m](Row& row) {
          const auto power = [&](Index times) { return std::pow(row.O_factor, float(times)); };
          const Index warps = right.tiling.key_warps;
          for (Index j = 0; j < row.keys; ++j) row.weights[std::size_t(j)] *= power(warps - 1 - right.warp_of(j));
          row.O_factor = power(warps);
        });
      });
  table.add("warp-product-dropped", "O leaves out the last warp's PV", product_of(all_but_last), more_than_two);
  return table;
}

/// P = e^x of what is in units of log2 already; the factor of l and O is right.
Table exponentials() {
  Table table;
  table.add("exp-for-exp2", "P is e^(S − m), with S and m in units of log2: it must be 2^(S − m), by exp2_ftz",
            [](Attention& m) {
              m.after_probabilities([right = m](Row& row) {
                for (std::size_t j = 0; j < row.P.size(); ++j)
                  row.P[j] = right.exponential(judge::log2_e * (row.S[j] - right.safe(row.subtracted)));
              });
            });
  return table;
}

/// Rows that fill up the last 32 have scores of 0.
Table rows() {
  Table table;
  table.add(
      "rows-of-another-lane",
      "a lane's scores are those of rows that lie side by side, and the next phase takes them for rows lane, lane + "
      "32, …",
      [](Attention& m) {
        m.after_probabilities([right = m](Row& row) {
          const Index Br = right.tiling.Br, first = round_down(row.query, Br), count = Br / 32, at = row.query - first;
          const Index other = first + at % 32 * count + at / 32;
          for (Index j = 0; j < row.keys; ++j)
            row.P[std::size_t(j)] =
                right.exponential(right.score(*row.head, other, row.first + j) - right.safe(row.subtracted));
        });
      },
      [](const Attention& m) { return m.tiling.key_warps > 0 && m.tiling.Br > 32; });
  table.add(
      "factor-of-the-first-rows",
      "all rows of a lane rescale l by the factor of its first: row lane + 32·i of the tile has one of its own",
      [](Attention& m) {
        m.after_factors([right = m, factors = std::vector<float>()](Row& row) mutable {
          const Index first = round_down(row.query, right.tiling.Br) + row.query % 32;
          if (first == row.query) return;
          if (row.number == 0) {
            factors.clear();
            right.attend(*row.head, first, [&](const Row& other) { factors.push_back(other.l_factor); });
          }
          row.l_factor = factors[std::size_t(row.number)];
        });
      },
      [](const Attention& m) { return m.tiling.key_warps > 0 && m.tiling.Br > 32; });
  table.add("one-maximum-for-32-rows",
            "the 32 rows that the lanes of a warp have at a time subtract one maximum, the largest: rows far below it "
            "vanish",
            [](Attention& m) {
              m.after_maximum([right = m](Row& row) {
                const Index first = round_down(row.query, 32), end = std::min(first + 32, right.Nq());
                float largest = end < first + 32 ? 0 : -infinity;
                for (Index i = first; i < end; ++i)
                  for (Index j = 0; j < row.keys; ++j)
                    largest = std::max(largest, right.score(*row.head, i, row.first + j));
                right.raise(row, largest);
              });
            });
  return table;
}

Table roundings() {
  Table table(&Attention::rounds_P);
  table.add("l-of-rounded-P", "l adds P after it was rounded for PV, not before", [](Attention& m) {
    m.after_probabilities([right = m](Row& row) {
      for (float& x : row.P) x = right.round_P(x);
    });
  });
  return table;
}

Table outputs() {
  Table table;
  table.add(
      "product-rescaled", "rescale multiplies the new PV, not the O before it",
      [](Attention& m) {
        m.after_weights([](Row& row) {
          for (float& x : row.weights) x *= row.O_factor;
          row.O_factor = 1;
        });
      },
      &Attention::several_tiles);
  table.add(
      "V-fragments-col-major",
      "the 16 × 16 fragments of V are transposed: as the right factor of PV they are row_major",
      [](Attention& m) { m.V = exchanged_in_fragments; }, whole_fragments);
  for (const auto& [name, rounded] : judge::formats)
    table.add(std::string("O-rounded-") + name, std::string("O is rounded to ") + name + " while it is summed",
              [rounded = rounded](Attention& m) {
                m.after_step([=](Row& row) {
                  for (float& x : row.O) x = rounded(x);
                });
              });
  return table;
}

// ---- the warm-ups ----

/// C = A·Bᵀ: element (i, j) is the sum over k of a(i, j, k)·b(i, j, k).
struct Product {
  using Factor = std::function<float(Index i, Index j, Index k)>;
  Tensor<float> A, B;
  Index step;
  Range terms{0, depth()};
  Factor a, b;

  Product(const Tensor<float>& A_, const Tensor<float>& B_, Index step_) : A(A_), B(B_), step(step_) {
    a = [this_A = A](Index i, Index, Index k) { return this_A(0, 0, i, k); };
    b = [this_B = B](Index, Index j, Index k) { return this_B(0, 0, j, k); };
  }
  Tensor<double> C() const {
    Tensor<double> result({1, 1, A.sizes[2], B.sizes[2]});
    for (Index i = 0; i < A.sizes[2]; ++i)
      for (Index j = 0; j < B.sizes[2]; ++j)
        for (Index k = terms.from; k < terms.to; ++k) result(0, 0, i, j) += double(a(i, j, k)) * b(i, j, k);
    return result;
  }
  Index depth() const { return A.sizes[3]; }
  bool square() const { return A.sizes[2] == depth() && B.sizes[2] == depth(); }
};
judge::MistakeTable<Product> products() {
  const auto several_steps = [](const Product& p) { return p.depth() > p.step; };
  judge::MistakeTable<Product> table(&Product::square);
  table.add("B-not-transposed", "C is A·B: read as col_major, B's memory is Bᵀ",
            [](Product& p) { p.b = [B = p.B](Index, Index j, Index k) { return B(0, 0, k, j); }; });
  table.add("A-transposed", "C is Aᵀ·Bᵀ: A is row_major",
            [](Product& p) { p.a = [A = p.A](Index i, Index, Index k) { return A(0, 0, k, i); }; });
  table.add("C-transposed", "C is B·Aᵀ, the transpose of A·Bᵀ: it is stored mem_row_major, and A is the left factor",
            [](Product& p) {
              p.a = [A = p.A](Index, Index j, Index k) { return A(0, 0, j, k); };
              p.b = [B = p.B](Index i, Index, Index k) { return B(0, 0, i, k); };
            });
  judge::MistakeTable<Product> any;
  any.add(table);
  any.add(
      "pieces-exchanged",
      "each 16 × 16 piece of C has the place of the one across the diagonal: the warp's number gives its columns, the "
      "accumulator's its rows",
      [](Product& p) {
        const auto exchanged = [](Index at, Index other) { return other / 16 * 16 + at % 16; };
        p.a = [=, A = p.A](Index i, Index j, Index k) { return A(0, 0, exchanged(i, j), k); };
        p.b = [=, B = p.B](Index i, Index j, Index k) { return B(0, 0, exchanged(j, i), k); };
      },
      [](const Product& p) { return p.A.sizes[2] == p.B.sizes[2] && p.A.sizes[2] > 16; });
  any.add("all-zeros", "every element is 0: nothing was multiplied", [](Product& p) { p.terms = {0, 0}; });
  any.add(
      "last-step-alone", "C holds the product of the last tiles alone: the accumulators are cleared in every step",
      [](Product& p) {
        p.terms = {p.depth() - p.step, p.depth()};
      },
      several_steps);
  any.add(
      "first-step-alone", "C holds the product of the first tiles alone",
      [](Product& p) {
        p.terms = {0, p.step};
      },
      several_steps);
  const auto again = [](bool of_A, bool of_B) {
    return [=](Product& p) {
      if (of_A) p.a = [p](Index i, Index, Index k) { return p.A(0, 0, i, k % p.step); };
      if (of_B) p.b = [p](Index, Index j, Index k) { return p.B(0, 0, j, k % p.step); };
    };
  };
  any.add("first-tile-again", "every step takes the first tile of A", again(true, false), several_steps);
  any.add("first-tile-again", "every step takes the first tile of B", again(false, true), several_steps);
  any.add("first-tile-again", "every step takes the first tiles of A and B", again(true, true), several_steps);
  const auto several_fragments = [](const Product& p) { return p.step > 16; };
  any.add(
      "B-fragments-row-major",
      "the 16 × 16 fragments of B are not transposed: as the right factor of A·Bᵀ they are col_major",
      [](Product& p) {
        p.b = [p](Index, Index j, Index k) { return p.B(0, 0, j / 16 * 16 + k % 16, k / 16 * 16 + j % 16); };
      },
      several_fragments);
  any.add(
      "B-fragments-exchanged",
      "fragments of B are taken from the wrong place of its tile: row and column of the place are exchanged",
      [](Product& p) {
        p.b = [p](Index, Index j, Index k) {
          return p.B(0, 0, k % p.step / 16 * 16 + j % 16, k / p.step * p.step + j / 16 * 16 + k % 16);
        };
      },
      several_fragments);
  any.add(
      "same-columns", "every 16 columns of C hold the first 16: each warp has 16 rows of B of its own",
      [](Product& p) { p.b = [p](Index, Index j, Index k) { return p.B(0, 0, j % 16, k); }; }, several_fragments);
  return any;
}

/// taken_from(i, j): the index in the matrix of element (i, j) of the transpose.
struct Transpose {
  Tensor<float> matrix;
  Index side;
  std::function<Index(Index i, Index j)> taken_from;

  Transpose(const Tensor<float>& matrix_, Index side_) : matrix(matrix_), side(side_) {
    taken_from = [columns = columns()](Index i, Index j) { return j * columns + i; };
  }
  Index rows() const { return matrix.sizes[2]; }
  Index columns() const { return matrix.sizes[3]; }
  Tensor<double> result() const {
    Tensor<double> result({1, 1, columns(), rows()});
    for (Index i = 0; i < columns(); ++i)
      for (Index j = 0; j < rows(); ++j) result(0, 0, i, j) = matrix.values[std::size_t(taken_from(i, j))];
    return result;
  }
};
judge::MistakeTable<Transpose> transposes() {
  judge::MistakeTable<Transpose> table;
  table.add("not-transposed", "the elements lie in their old order: nothing was transposed",
            [](Transpose& t) { t.taken_from = [rows = t.rows()](Index i, Index j) { return i * rows + j; }; });
  table.add(
      "tile-not-transposed",
      "each tile has the right place, but is not transposed itself: what is written along a row of the tile must be "
      "read along a column",
      [](Transpose& t) {
        t.taken_from = [side = t.side, columns = t.columns()](Index i, Index j) {
          return (j / side * side + i % side) * columns + i / side * side + j % side;
        };
      },
      [](const Transpose& t) { return t.rows() % t.side == 0 && t.columns() % t.side == 0; });
  return table;
}

using enum judge::AttentionMistakes::Shows;
const judge::Declared declared(
    {.chapter = "03_tiled_wmma",
     .uses = {"02_online_softmax"},
     .attention = {{judge::Turn::scores, in_both, scores()},
                   {judge::Turn::warps, in_both, loads()},
                   {judge::Turn::warps, in_both, warps()},
                   {judge::Turn::warps, in_both, rows()},
                   {judge::Turn::rounding, in_both, roundings()},
                   {judge::Turn::softmax, in_both, exponentials()},
                   {judge::Turn::output, in_O, outputs()}},
     .parts = judge::ids_of(products(), transposes()),
     .claimed = judge::words(
         "bank-conflicts barriers copied-wrongly even-rows extra-memory heads-above-65535 inverse-rounded "
         "mask-scaled narrow-access no-shared-memory products-by-hand rows-mixed tail-not-zeroed "
         "traffic uncoalesced"),
     .without_mutant = {{judge::one_of_a_kind,
                         judge::words("A-transposed O-rounded-bf16 accumulators-kept all-zeros m-of-first-warp "
                                      "pieces-exchanged product-rescaled rows-of-another-lane warp-product-dropped "
                                      "warp-sum-dropped")},
                        {judge::one_claim_of_several, judge::words("copied-wrongly no-shared-memory")}}});

}  // namespace

std::vector<judge::Mistake> product_mistakes(const Tensor<float>& A, const Tensor<float>& B, Index step) {
  return judge::made<Product>(products(), Product(A, B, step), &Product::C);
}
std::vector<judge::Mistake> transpose_mistakes(const Tensor<float>& matrix, Index side) {
  return judge::made<Transpose>(transposes(), Transpose(matrix, side), &Transpose::result);
}

}  // namespace workbook::test::ch03
