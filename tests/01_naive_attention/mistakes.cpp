// What goes wrong in attention written down plainly, and in its three steps.
#include "tests/01_naive_attention/mistakes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

namespace workbook::test::ch01 {
namespace {

using judge::Head, judge::Index, judge::infinity, judge::ln_2, judge::log2_e;
using judge::Range, judge::Rounding, judge::Row, judge::to_bf16, judge::to_fp16;
using Table = AttentionTable;

/// Three finite numbers that stages take for −∞: the LSE tells them apart, O does not.
constexpr float finite_masks[] = {-1e9F, -1e30F, std::numeric_limits<float>::lowest()};

void round(std::vector<float>& values, Rounding rounded) {
  for (float& x : values) x = rounded(x);
}

std::function<void(Attention&)> masked_scores_are(float value) {
  return [=](Attention& m) { m.after_scores([=](Row& row) { std::ranges::replace(row.S, -infinity, value); }); };
}

/// Every query sees the keys of Range(query).
template <class Seen>
std::function<void(Attention&)> mask(Seen seen) {
  return [=](Attention& m) { m.sees = [=, right = m](Index query) { return seen(right, query); }; };
}

bool has_row_without_keys(const Attention& m) {
  if (!m.given_S) return m.causal() && m.Nq() > m.Nk();
  for (Index i = 0; i < m.Nq(); ++i) {
    const float* S_i = &(*m.given_S)(0, 0, i, 0);
    if (std::all_of(S_i, S_i + m.Nk(), [](float x) { return x == -infinity; })) return true;
  }
  return false;
}

/// All tensors are read, and O is written, at another place.
std::function<void(Attention&)> places(const judge::Place& place) {
  return [=](Attention& m) { m.Q = m.K = m.V = place; };
}

/// Row i of V stands for all of them.
void V_row_of_the_query(Attention& m) {
  const auto sum = std::make_shared<float>();
  m.after_weights([=](Row& row) {
    *sum = 0;
    for (float& weight : row.weights) *sum += std::exchange(weight, 0.0F);
  });
  m.after_step([=, d = m.d(), Nk = m.Nk()](Row& row) {
    for (Index c = 0; c < d && row.query < Nk; ++c)
      row.O[std::size_t(c)] += *sum * row.head->V[std::size_t(row.query * d + c)];
  });
}

/// (b, h) of K and V is read at another head.
std::function<void(Attention&)> heads_of_KV(const judge::Place& place) {
  return [=](Attention& m) { m.K = m.V = place; };
}

Index next_row(const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
  return Index(tensor.index(b, h, (row + 1) % tensor.sizes[2], column));
}

/// The softmax is taken over groups of scores that are no rows: P_ij = exp(S_ij − m)/l with m and l of group(i, j).
template <class Group>
std::function<void(Attention&)> normalised_over(Group group) {
  return [=](Attention& m) {
    const Tensor<double> S = m.S();
    const auto [B, H, Nq, Nk] = S.sizes;
    const auto lse = std::make_shared<Tensor<double>>(S.sizes, -infinity);  // of group g of a head at (b, h, g, 0)
    const auto add = [](double& sum, double x) {
      if (!(x > -infinity)) return;  // masked, or in a tile that is not visited
      const double larger = std::max(sum, x);
      sum = larger + std::log(std::exp(sum - larger) + std::exp(x - larger));
    };
    for (Index b = 0; b < B; ++b)
      for (Index h = 0; h < H; ++h)
        for (Index i = 0; i < Nq; ++i)
          for (Index j = 0; j < Nk; ++j) {
            const auto [row, column] = group(i, j);
            add((*lse)(b, h, row, column), S(b, h, i, j));
          }
    m.divisions = 0;
    m.after_scores([=](Row& row) {
      for (Index j = 0; j < row.keys; ++j) {
        const auto [at_row, at_column] = group(row.query, row.first + j);
        const double of_group = (*lse)(row.head->b, row.head->h, at_row, at_column);
        if (of_group > -infinity) row.S[std::size_t(j)] = float(row.S[std::size_t(j)] - of_group);
      }
    });
    m.after_maximum([](Row& row) { row.m_old = row.m = row.subtracted = 0; });
  };
}
std::pair<Index, Index> column_of(Index, Index j) {
  return {0, j};
}

/// The scale and QKᵀ.
Table scores() {
  const auto scaled = [](const Attention& m) { return m.scale != 0; };
  const auto wide = [](const Attention& m) { return m.d() > 1; };
  Table table;
  table.add(
      "no-scale", "the scores are not multiplied by the scale 1/√d", [](Attention& m) { m.scale = 1; }, scaled);
  table.add("scale-twice", "the scale is applied twice", [](Attention& m) { m.scale *= m.scale; });
  table.add(
      "scale-one-over-d", "the scale is 1/d instead of 1/√d", [](Attention& m) { m.scale = 1 / float(m.d()); }, scaled);
  table.add(
      "scale-inverted", "the scores are divided by the scale", [](Attention& m) { m.scale = 1 / m.scale; }, scaled);
  table.add(
      "scale-ignored", "the scale that was given is ignored, 1/√d is used",
      [](Attention& m) { m.scale = default_scale(m.d()); }, scaled);
  table.add(
      "scale-without-sign", "the scale's sign is lost", [](Attention& m) { m.scale = std::abs(m.scale); },
      [](const Attention& m) { return m.scale < 0; });
  table.add("K-not-transposed", "K is not transposed: its memory is read as (d, Nk), not (Nk, d)",
            [](Attention& m) { m.K = place_in_transposed; });
  table.add(
      "last-feature-dropped", "the sum over d in QKᵀ stops one column early",
      [](Attention& m) {
        m.features = {0, m.d() - 1};
      },
      wide);
  table.add(
      "sum-overwritten", "each term of QKᵀ overwrites the sum: only the last column counts",
      [](Attention& m) {
        m.features = {m.d() - 1, m.d()};
      },
      wide);
  for (const auto& [name, rounded] : judge::formats)
    table.add(std::string("S-rounded-") + name, std::string("the scores S are rounded to ") + name,
              [rounded = rounded](Attention& m) { m.after_scores([=](Row& row) { round(row.S, rounded); }); });
  return table;
}

/// Which keys and which heads enter.
Table keys() {
  const auto several_keys = [](const Attention& m) { return m.Nk() > 1; };
  const auto heads = [](const Attention& m) { return m.problem->shape.H > 1; };
  const auto batches = [](const Attention& m) { return m.problem->shape.B > 1; };
  const auto either = [](const Attention& m) { return m.problem->shape.B * m.problem->shape.H > 1; };
  const auto first_head = [](const Tensor<float>& tensor, Index, Index, Index row, Index column) {
    return Index(tensor.index(0, 0, row, column));
  };
  Table table;
  table.add(
      "last-key-dropped", "the last key is left out", [](Attention& m) { m.keys.to -= 1; }, several_keys);
  table.add(
      "first-key-dropped", "the first key is left out", [](Attention& m) { m.keys.from = 1; }, several_keys);
  table.add("first-head-everywhere", "every head computes with the Q, K and V of the first head", places(first_head),
            either);
  table.add("first-head-KV", "every head reads the K and V of the first head", heads_of_KV(first_head), either);
  table.add("heads-swapped", "K and V are read from another head than Q",
            heads_of_KV([](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
              return Index(tensor.index(b, tensor.sizes[1] - 1 - h, row, column));
            }),
            heads);
  table.add("batch-ignored", "every batch reads the Q, K and V of the first batch",
            places([](const Tensor<float>& tensor, Index, Index h, Index row, Index column) {
              return Index(tensor.index(0, h, row, column));
            }),
            batches);
  table.add("heads-mixed", "batch and head are mixed up: head (b, h) starts at (b·H + h)·N·d",
            places([](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
              return Index(tensor.index(0, h * tensor.sizes[0] + b, row, column));
            }),
            [=](const Attention& m) { return heads(m) && batches(m); });
  table.add(
      "heads-interleaved", "the tensors are taken as (batch, seq, head, d): they are (batch, head, seq, d)",
      [](Attention& m) {
        m.Q = m.K = m.V = m.written = [](const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
          const auto& [B, H, rows, columns] = tensor.sizes;
          return ((b * rows + row) * H + h) * columns + column;
        };
      },
      heads);
  return table;
}

void l_without_max(Attention& m) {
  m.after_sum([](Row& row) {
    row.sum = 0;
    for (const float x : row.S) row.sum += std::exp(x);
  });
}

void quotient_of_exponentials(Attention& m) {
  m.after_probabilities([right = m](Row& row) {
    const float of_m = std::exp(right.safe(row.subtracted));
    for (std::size_t j = 0; j < row.P.size(); ++j) row.P[j] = std::exp(row.S[j]) / of_m;
  });
}
constexpr const char* exponentials_divided =
    "exp(S) is divided by exp(m), and both are infinite above 88 and 0 below −103: subtract first, exp(S − m)";

void equal_weights(Attention& m) {
  m.after_weights([](Row& row) {
    if (row.l == 0) std::ranges::fill(row.weights, 1 / float(row.weights.size()));
  });
}
constexpr const char* equally_weighted =
    "l = 0 is answered by equal weights: a row without a visible key has P = 0, not 1/Nk";

/// What comes after P; none of it shows in the LSE.
Table outputs() {
  const auto untiled = [](const Attention& m) { return !m.tiled(); };
  Table table;
  table.add("equal-weights", equally_weighted, equal_weights,
            [](const Attention& m) { return !m.tiled() && has_row_without_keys(m); });
  table.add("V-transposed", "V's memory is read as (d, Nk), not (Nk, d)",
            [](Attention& m) { m.V = place_in_transposed; });
  table.add(
      "V-wrong-row", "P is multiplied with V shifted by one row", [](Attention& m) { m.V = next_row; },
      [](const Attention& m) { return m.Nk() > 1; });
  table.add("V-row-of-the-query", "every P of query i is multiplied with row i of V: it must be row j",
            V_row_of_the_query);
  for (const auto& [name, rounded] : judge::formats) {
    const std::string id = std::string("P-rounded-") + name, sentence = std::string("P is rounded to ") + name;
    table.add(id, sentence + " before PV", [rounded = rounded](Attention& m) { m.round_P = rounded; });
    table.add(
        id, sentence + " before it is divided by l",
        [rounded = rounded](Attention& m) { m.after_sum([=](Row& row) { round(row.P, rounded); }); }, untiled);
  }
  table.add(
      "mask-after-softmax", "the mask is applied after the softmax: masked keys count in l",
      [](Attention& m) {
        m.after_weights([sees = m.sees](Row& row) {
          for (Index j = 0; j < row.keys; ++j)
            if (!sees(row.query).contains(row.first + j)) row.weights[std::size_t(j)] = 0;
        });
        m.sees = [](Index) { return Range{}; };
      },
      &Attention::causal);
  table.add("softmax-wrong-axis", "the softmax runs over the queries, not over the keys", normalised_over(column_of));
  return table;
}

/// What is wrong with all of P shows in the LSE too.
Table probabilities() {
  Table table;
  for (const bool visible_only : {false, true})
    table.add("mean-of-V", "O is the mean of V: every key has the same weight", [=](Attention& m) {
      if (!visible_only) m.sees = [](Index) { return Range{}; }, m.goes_to = {};
      m.after_scores([](Row& row) {
        for (float& x : row.S) x = x == -infinity ? x : 0;
      });
    });
  for (const auto& [name, rounded] : judge::formats)
    table.add(std::string("P-rounded-") + name, std::string("P is rounded to ") + name + " before it is summed",
              [rounded = rounded](Attention& m) { m.after_probabilities([=](Row& row) { round(row.P, rounded); }); });
  return table;
}

/// The last step of the LSE.
Table lses() {
  const auto lse = [](auto of_m_and_l) { return [=](Attention& m) { m.lse = of_m_and_l; }; };
  const auto right = [](float m, float l) { return m + std::log(l); };
  Table table;
  table.add("lse-without-max", "the LSE is log(l) without m", lse([](float, float l) { return std::log(l); }));
  table.add("lse-max-only", "the LSE is m without log(l)", lse([](float m, float) { return m; }));
  table.add("lse-not-log", "the LSE is m + l: the logarithm of l is missing",
            lse([](float m, float l) { return m + l; }));
  table.add("lse-log-of-sum", "the LSE is log(m + l): it must be m + log(l)",
            lse([](float m, float l) { return std::log(m + l); }));
  table.add("lse-sum-only", "the LSE holds l: it must be m + log(l)", lse([](float, float l) { return l; }));
  table.add("lse-base-2", "the LSE is in base 2: it must be the natural logarithm",
            lse([](float m, float l) { return m * log2_e + std::log2(l); }));
  table.add("lse-base-2", "the LSE takes log2(l): it must be the natural logarithm",
            lse([](float m, float l) { return m + std::log2(l); }));
  table.add("lse-base-2", "the LSE adds m in units of base 2: it must be divided by log2(e)",
            lse([](float m, float l) { return m * log2_e + std::log(l); }));
  table.add("lse-e-of-base-2",
            "the LSE takes log(l) among numbers in units of log2, and multiplies it by ln(2): there it must be log2(l)",
            lse([](float m, float l) { return m + std::log(l) * ln_2; }));
  table.add("lse-minus-max", "the LSE is log(l) − m: m must be added",
            lse([](float m, float l) { return std::log(l) - m; }));
  table.add("lse-minus-log", "the LSE is m − log(l): the logarithm must be added",
            lse([](float m, float l) { return m - std::log(l); }));
  table.add(
      "lse-unscaled-max", "the LSE adds the maximum of the unscaled scores",
      [](Attention& m) { m.lse = [scale = m.scale](float m, float l) { return m / scale + std::log(l); }; },
      [](const Attention& m) { return m.scale != 1; });
  table.add("lse-negative", "the LSE has the wrong sign", lse([=](float m, float l) { return -right(m, l); }));
  table.add("lse-masked-zero", "the LSE of a row without a visible key is 0: it must be −∞",
            lse([=](float m, float l) { return l == 0 ? 0 : right(m, l); }), has_row_without_keys);
  table.add("lse-masked-plus-infinity", "the LSE of a row without a visible key is +∞: it must be −∞",
            lse([=](float m, float l) { return l == 0 ? infinity : right(m, l); }), has_row_without_keys);
  return table;
}

/// m is the largest of all scores but one. It shows where a row sees no other: its m is −∞.
Table short_maxima() {
  Table table;
  for (const bool first : {true, false})
    table.add("maximum-without-one",
              first ? "the first score is not part of the maximum m" : "the last score is not part of the maximum m",
              [=](Attention& m) {
                m.after_maximum([=, right = m](Row& row) {
                  float largest = -infinity;
                  for (std::size_t j = first ? 1 : 0; j + (first ? 0 : 1) < row.S.size(); ++j)
                    largest = std::max(largest, row.S[j]);
                  right.raise(row, largest);
                });
              });
  return table;
}

/// Parts of the output that are left unwritten.
Table unwritten() {
  Table table;
  table.add(
      "last-row-not-written", "the last row is never written", [](Attention& m) { m.rows.to = m.Nq() - 1; },
      [](const Attention& m) { return m.Nq() > 1; });
  table.add(
      "first-head-only", "only the first head is written", [](Attention& m) { m.heads_written = 1; },
      [](const Attention& m) { return m.problem->shape.B * m.problem->shape.H > 1; });
  return table;
}

// ---- 1.1, S = scale·QKᵀ ----

/// Where there are more keys than queries, or fewer.
Table lengths() {
  Table table([](const Attention& m) { return m.Nq() != m.Nk(); });
  constexpr const char* sentence =
      "the keys that a query sees are limited by Nq: there are Nk (have the two changed places in the mask?)";
  table.add("limited-by-Nq", sentence, mask([](const Attention& m, Index i) {
              return Range{0, std::clamp<Index>(visible_keys(i, m.Nk(), m.Nq(), m.causal()), 0, m.Nk())};
            }));
  table.add("limited-by-Nq", sentence, mask([](const Attention& m, Index i) {
              return Range{0, std::min(m.visible(i), m.Nq())};
            }));
  return table;
}

Table scores_alone() {
  Table table;
  table.add(scores());
  table.add(masks());
  table.add(lengths());
  table.add("K-row-of-the-query", "query i is multiplied with row i of K for every key: it must be row j",
            [](Attention& m) {
              m.after_scores([right = m](Row& row) {
                for (float& x : row.S)
                  if (x > -infinity) x = right.score(*row.head, row.query, row.query);
              });
            });
  table.add(
      "mask-one-too-few", "the last key that a query sees is masked too",
      [](Attention& m) { m.sees = [last = m.Nk() - 1](Index) {
                           return Range{0, last};
                         }; },
      [](const Attention& m) { return m.unmasked(); });
  table.add("mask-not-written", "masked scores are never written: they have to become −∞",
            masked_scores_are(judge::unwritten_value), [](const Attention& m) { return m.causal(); });
  table.add("S-transposed", "S is written as (Nk, Nq): row i of S belongs to query i",
            [](Attention& m) { m.written = place_in_transposed; });
  table.add("sum-not-reset", "the sum of QKᵀ is not set back to 0 before each key: it still holds the keys before it",
            [](Attention& m) {
              m.after_scores([](Row& row) {
                float sum = 0;
                for (float& x : row.S) x = x == -infinity ? x : sum += x;
              });
            });
  table.add("last-key-dropped", "the last key's scores are never written", [](Attention& m) { m.keys.to -= 1; });
  table.add("last-row-not-written", "the last query's scores are never written",
            [](Attention& m) { m.rows.to = m.Nq() - 1; });
  table.add(nothing());
  return table;
}

// ---- 1.2, P = softmax(S) and the LSE ----

/// l is set to 0 before the first row only: every row adds to what the rows before it have left.
void keep_l(Attention& m) {
  m.after_sum([l = 0.0F](Row& row) mutable { row.sum = l += row.sum; });
}

/// m begins with what a row before has left.
void keep_m(Attention& m) {
  const auto kept = std::make_shared<float>(-infinity);
  m.after_scores([=](Row& row) { row.m = *kept; });
  m.after_step([=](Row& row) { *kept = row.m; });
}
constexpr const char* m_of_another_row =
    "m does not begin with −∞ in each row, but with a score of another row: scores far below that one underflow";

Table softmax_alone() {
  Table table;
  table.add(softmaxes());
  table.add(finite_starts());
  table.add("no-final-division", "the row is not divided by its sum l", [](Attention& m) { m.divisions = 0; });
  table.add(
      "masked-row-divided", "a row of nothing but −∞ is divided by l = 0, which is NaN: its P is 0",
      [](Attention& m) { m.safe_division = false; }, has_row_without_keys);
  table.add("finite-mask", "−∞ is replaced by a large finite number: a row of nothing but −∞ becomes uniform, not 0",
            masked_scores_are(-1e9F), has_row_without_keys);
  table.add("l-without-max", "l is the sum of exp(S): it must be that of exp(S − m)", l_without_max);
  table.add("exponentials-divided", exponentials_divided, quotient_of_exponentials);
  table.add("equal-weights", equally_weighted, equal_weights, has_row_without_keys);
  table.add("last-key-dropped", "the last element of each row is left out", [](Attention& m) { m.keys.to -= 1; });
  for (const auto& [name, rounded] : judge::formats)
    table.add(std::string("P-rounded-") + name, std::string("P is rounded to ") + name,
              [rounded = rounded](Attention& m) { m.after_weights([=](Row& row) { round(row.weights, rounded); }); });
  table.add("last-key-dropped", "the last element of each row is left out of the sum l",
            [](Attention& m) { m.after_sum([](Row& row) { row.sum -= row.P.back(); }); });
  table.add("softmax-wrong-axis", "the softmax runs down the columns, not along the rows", normalised_over(column_of));
  table.add("softmax-whole-matrix", "one softmax runs over the whole matrix, not one over each row",
            normalised_over([](Index, Index) {
              return std::pair<Index, Index>{0, 0};
            }));
  table.add("l-not-reset", "l is not set back to 0 before each row", keep_l);
  table.add("m-not-reset", m_of_another_row, keep_m);
  table.add("scores-returned", "P holds the scores themselves: exp and the division are missing",
            [](Attention& m) { m.after_weights([](Row& row) { row.weights = row.S; }); });
  table.add("last-row-not-written", "the last row is never written", [](Attention& m) { m.rows.to = m.Nq() - 1; });
  table.add(nothing());
  return table;
}

Table row_lse_alone() {
  Table table;
  table.add(lses());
  table.add(softmaxes());
  table.add(finite_starts());
  table.add("l-without-max", "l is the sum of exp(S): it must be that of exp(S − m)", l_without_max);
  table.add("exponentials-divided", exponentials_divided, quotient_of_exponentials);
  for (const float finite : finite_masks)
    table.add("finite-mask", "−∞ is replaced by a large finite number: the LSE of a row of nothing but −∞ must be −∞",
              masked_scores_are(finite), has_row_without_keys);
  table.add("last-key-dropped", "the last score of each row is left out", [](Attention& m) { m.keys.to -= 1; });
  table.add("first-key-dropped", "the first score of each row is left out", [](Attention& m) { m.keys.from = 1; });
  return table;
}
Table row_lse_last() {
  Table table;
  table.add("l-not-reset", "l is not set back to 0 before each row", keep_l);
  table.add("m-not-reset", m_of_another_row, keep_m);
  table.add(short_maxima());
  table.add("last-row-not-written", "the last row is never written", [](Attention& m) { m.rows.to = m.Nq() - 1; });
  table.add(nothing());
  return table;
}

// ---- 1.3, O = PV ----

/// P stands where scores do: what PV takes is what was given.
Attention product_of(const Tensor<float>& P, const Tensor<float>& V) {
  Problem problem;
  problem.shape = {1, 1, 1, P.sizes[2], P.sizes[3], V.sizes[3]};
  problem.Q = Tensor<float>({1, 1, P.sizes[2], V.sizes[3]});
  problem.V = V;
  Attention m(problem, {}, float32_precision());
  m.given_S = std::make_shared<const Tensor<float>>(P);
  m.divisions = 0;
  m.after_weights([](Row& row) { row.weights = row.S; });
  return m;
}

Table product_alone() {
  const auto weights = [](float weight) {
    return [=](Attention& m) { m.after_weights([=](Row& row) { std::ranges::fill(row.weights, weight); }); };
  };
  Table table;
  table.add("P-transposed", "P's memory is read as (Nk, Nq), not (Nq, Nk)", [](Attention& m) {
    m.after_scores([P = m.given_S](Row& row) {
      for (Index j = 0; j < row.keys; ++j)
        row.S[std::size_t(j)] = P->values[std::size_t(place_in_transposed(*P, 0, 0, row.query, j))];
    });
  });
  table.add("V-transposed", "V's memory is read as (d, Nk), not (Nk, d)",
            [](Attention& m) { m.V = place_in_transposed; });
  table.add("last-key-dropped", "the last key is left out", [](Attention& m) { m.keys.to -= 1; });
  table.add("first-key-dropped", "the first key is left out", [](Attention& m) { m.keys.from = 1; });
  table.add(
      "as-many-keys-as-queries", "the sum goes over as many keys as there are queries: over Nq, it must be Nk",
      [](Attention& m) { m.keys.to = m.Nq(); }, [](const Attention& m) { return m.Nq() < m.Nk(); });
  table.add("V-wrong-row", "P is multiplied with V shifted by one row", [](Attention& m) { m.V = next_row; });
  table.add("V-row-of-the-query", "every P of query i is multiplied with row i of V: it must be row j",
            V_row_of_the_query);
  table.add("V-first-row", "every key reads the first row of V", [](Attention& m) {
    m.V = [](const Tensor<float>& V, Index, Index, Index, Index column) { return Index(V.index(0, 0, 0, column)); };
  });
  table.add("O-overwritten", "each key overwrites O instead of adding to it", [](Attention& m) {
    m.after_weights([](Row& row) { std::fill(row.weights.begin(), row.weights.end() - 1, 0); });
  });
  table.add("stops-at-weight-0", "the sum over the keys ends at the first P that is 0", [](Attention& m) {
    m.after_weights([](Row& row) { std::fill(std::ranges::find(row.weights, 0.0F), row.weights.end(), 0.0F); });
  });
  table.add("P-ignored", "the rows of V are summed without their weights P", weights(1));
  for (const auto& [name, rounded] : judge::formats)
    table.add(std::string("P-rounded-") + name, std::string("P is rounded to ") + name + " before PV",
              [rounded = rounded](Attention& m) { m.after_weights([=](Row& row) { round(row.weights, rounded); }); });
  table.add("mean-of-V", "O is the mean of V: every key has the same weight",
            [=](Attention& m) { weights(1 / float(m.Nk()))(m); });
  table.add("last-row-not-written", "the last row is never written", [](Attention& m) { m.rows.to = m.Nq() - 1; });
  table.add("last-column-not-written", "the last column is never written",
            [](Attention& m) { m.after_last([](Row& row) { row.O.back() = judge::unwritten_value; }); });
  table.add(nothing());
  return table;
}

const judge::Declared declared(
    {.chapter = "01_naive_attention",
     .attention = {{judge::Turn::lse, judge::AttentionMistakes::in_LSE, lses()},
                   {judge::Turn::lse, judge::AttentionMistakes::in_LSE, short_maxima()},
                   {judge::Turn::scores, judge::AttentionMistakes::in_both, scores()},
                   {judge::Turn::mask, judge::AttentionMistakes::in_both, in_all_tiles(masks())},
                   {judge::Turn::mask, judge::AttentionMistakes::in_both, lengths()},
                   {judge::Turn::softmax, judge::AttentionMistakes::in_both, softmaxes()},
                   {judge::Turn::keys, judge::AttentionMistakes::in_both, keys()},
                   {judge::Turn::output, judge::AttentionMistakes::in_O, divisions()},
                   {judge::Turn::output, judge::AttentionMistakes::in_O, outputs()},
                   {judge::Turn::output, judge::AttentionMistakes::in_both, probabilities()},
                   {judge::Turn::unwritten, judge::AttentionMistakes::in_both, unwritten()},
                   {judge::Turn::nothing, judge::AttentionMistakes::in_both, nothing()}},
     .parts = judge::ids_of(scores_alone(), softmax_alone(), row_lse_alone(), running(), row_lse_last(),
                            product_alone()),
     .claimed = judge::words("extra-memory l-plus-epsilon nan-hidden traffic mask"),
     .without_mutant = {
         {judge::given_code, judge::words("batch-ignored first-head-KV first-head-everywhere first-head-only "
                                          "heads-interleaved heads-mixed heads-swapped last-column-not-written "
                                          "last-row-not-written")},
         {judge::one_of_a_kind, judge::words("P-ignored S-transposed V-first-row V-transposed V-wrong-row exp-base-2 "
                                             "exponent-wrong-sign first-key-dropped l-not-reset last-feature-dropped "
                                             "lse-masked-plus-infinity lse-max-only lse-minus-max lse-negative "
                                             "lse-not-log lse-sum-only lse-unscaled-max "
                                             "sum-not-reset "
                                             "mask-after-softmax mask-reversed rescale-swapped rescaled-too-late "
                                             "scale-ignored scale-inverted scores-returned softmax-whole-matrix "
                                             "sum-overwritten")},
         {"needs an element of 16 bits, and S stays in float there",
          judge::words("S-rounded-bf16 S-rounded-fp16 P-rounded-fp16")}}});

}  // namespace

Index place_in_transposed(const Tensor<float>& tensor, Index b, Index h, Index row, Index column) {
  return Index(tensor.index(b, h, 0, 0)) + column * tensor.sizes[2] + row;
}

Table masks() {
  const auto seen = [](Index from, Index to) { return Range{from, to}; };
  Table table(&Attention::causal);
  table.add("no-mask", "the causal mask is missing: queries see future keys",
            mask([=](const Attention& m, Index) { return seen(0, m.Nk()); }));
  table.add("mask-one-too-many", "the mask is off by one: query i also sees key i + (Nk − Nq) + 1",
            mask([=](const Attention& m, Index i) { return seen(0, m.visible(i + 1)); }));
  table.add("mask-one-too-few", "the mask is off by one: query i does not see key i + (Nk − Nq)",
            mask([=](const Attention& m, Index i) { return seen(0, m.visible(i - 1)); }));
  table.add("mask-top-left", "the mask is aligned top left, j ≤ i: it must be j ≤ i + (Nk − Nq)",
            mask([=](const Attention& m, Index i) { return seen(0, std::min(i + 1, m.Nk())); }),
            [](const Attention& m) { return m.Nq() != m.Nk(); });
  table.add("mask-reversed", "the mask is the wrong way round: queries see only future keys",
            mask([=](const Attention& m, Index i) { return seen(m.visible(i - 1), m.Nk()); }));
  table.add("mask-zero", "masked scores are 0 instead of −∞", masked_scores_are(0));
  table.add(
      "mask-scaled", "the mask is multiplied by the scale too: −∞ becomes +∞ for a negative scale, and NaN for 0",
      [](Attention& m) { masked_scores_are(m.scale * -infinity)(m); }, [](const Attention& m) { return m.scale <= 0; });
  for (const float finite : finite_masks)
    for (const float unit : {1.0F, ln_2})  // of scores in units of log2
      table.add(
          "finite-mask",
          "a row without a visible key averages masked keys: masked scores are a large finite number instead of −∞",
          masked_scores_are(finite * unit));
  return table;
}

/// Another way through the tiles, before each change.
Table with_tiles(const Table& table, const std::function<void(Attention&)>& choose_tiles) {
  Table result([](const Attention& m) { return m.causal(); });
  for (const auto& entry : table.entries)
    result.add(
        entry.id, entry.sentence,
        [=, change = entry.change](Attention& m) {
          choose_tiles(m);
          change(m);
        },
        entry.when);
  return result;
}
Table in_all_tiles(const Table& table) {
  return with_tiles(table, [](Attention& m) { m.goes_to = {}; });
}
Table in_right_tiles(const Table& table) {
  Table tiled(&Attention::tiled);
  tiled.add(with_tiles(table, [](Attention& m) {
    m.goes_to = [right = m](Index query) { return right.visible(right.last_of_tile(query)); };
  }));
  return tiled;
}
Table in_each_visit(const Table& table, const std::vector<std::string>& ids) {
  Table result([](const Attention& m) { return !m.goes_to; });
  for (const auto& entry : in_right_tiles(table).entries)
    if (std::ranges::count(ids, entry.id) > 0) result.add(entry.id, entry.sentence, entry.change, entry.when);
  return result;
}

Table softmaxes() {
  Table table;
  table.add(
      "m-starts-at-0",
      "m starts at 0, or at the tiny std::numeric_limits<float>::min(), instead of −∞: scores far below 0 underflow",
      [](Attention& m) { m.first_m = 0; });
  table.add("no-max-subtraction", "the row maximum is not subtracted before exp",
            [](Attention& m) { m.after_maximum([](Row& row) { row.m_old = row.m = row.subtracted = 0; }); });
  table.add("no-max-subtraction", "the row maximum is not subtracted before exp, though l and the LSE take it",
            [](Attention& m) { m.after_maximum([](Row& row) { row.subtracted = 0; }); });
  table.add("masked-row-nan", "a row without a visible key computes −∞ − (−∞), which is NaN: subtract 0 where m is −∞",
            [](Attention& m) { m.safe_m = false; });
  table.add("exp-base-2", "exp2 is given scores without the factor log2(e): it computes 2^(S − m)",
            [](Attention& m) { m.exponential = [](float x) { return std::exp2(x); }; });
  table.add("exp-of-base-2",
            "exp is given scores in units of log2: it computes e^((S − m)·log2(e)); exp2 is what they are made for",
            [](Attention& m) { m.exponential = [](float x) { return std::exp(x * log2_e); }; });
  table.add("exponent-wrong-sign", "the exponent is upside down: exp(m − S), not exp(S − m)", [](Attention& m) {
    m.after_probabilities([safe = m.safe_m](Row& row) {
      const float shift = row.subtracted == -infinity && safe ? 0 : row.subtracted;
      for (std::size_t j = 0; j < row.P.size(); ++j) row.P[j] = std::exp(shift - row.S[j]);
    });
  });
  return table;
}

Table finite_starts() {
  Table table;
  for (const int first : {-100, -1000})
    table.add("m-starts-finite", fmt::format("m starts at {} instead of −∞: scores far below it underflow", first),
              [=](Attention& m) { m.first_m = float(first); });
  return table;
}

Table divisions() {
  Table table;
  table.add("no-final-division", "O is never divided by l", [](Attention& m) { m.divisions = 0; });
  table.add("divided-twice", "O is divided by l twice", [](Attention& m) { m.divisions = 2; });
  table.add(
      "masked-row-divided", "a row without a visible key is divided by l = 0, which is NaN: its O is 0",
      [](Attention& m) { m.safe_division = false; }, has_row_without_keys);
  table.add(
      "m-starts-at-1e9", "m starts at a large finite number, so that m = −∞ does not mark a row without a visible key",
      [](Attention& m) { m.first_m = -1e9F, m.safe_division = false; }, has_row_without_keys);
  return table;
}

Table running() {
  const auto factors = [](auto of_row) {
    return [=](Attention& m) {
      m.after_factors([=, right = m](Row& row) { row.l_factor = row.O_factor = of_row(right, row); });
    };
  };
  Table table;
  table.add("l-not-rescaled", "l is not rescaled when a later {tile} raises the maximum",
            [](Attention& m) { m.after_factors([](Row& row) { row.l_factor = 1; }); });
  table.add("rescale-wrong-sign", "the rescale factor is upside down: exp(m_new − m_old), not exp(m_old − m_new)",
            factors([](const Attention& right, const Row& row) {
              return row.m_old == -infinity ? 1 : right.exponential(right.safe(row.m) - row.m_old);
            }));
  table.add("rescale-swapped",
            "the two rescale factors are swapped: the old sums get the factor of the new {tile}, which gets theirs",
            [=](Attention& m) {
              m.after_factors([right = m](Row& row) {
                for (float& x : row.P) x *= std::exp(row.m_old - right.safe(row.m));
              });
              factors([](const Attention& right, const Row& row) {
                return right.exponential(row.m_tile - right.safe(row.m));
              })(m);
            });
  table.add("rescaled-too-late", "what is accumulated is rescaled after the new {tile} has been added, not before",
            [](Attention& m) {
              m.after_sum([](Row& row) { row.sum *= row.l_factor; });
              m.after_weights([](Row& row) {
                for (float& x : row.weights) x *= row.O_factor;
              });
            });
  const auto of_several = [](const Attention& m) { return m.step != 1; };
  table.add(
      "sum-rescaled", "the factor multiplies the new {tile}'s sum, not the l before it",
      [](Attention& m) {
        m.after_sum([](Row& row) {
          row.sum *= row.l_factor;
          row.l_factor = 1;
        });
      },
      of_several);
  table.add(
      "l-and-sum-rescaled", "the factor multiplies the new {tile}'s sum too: it belongs to the l before it alone",
      [](Attention& m) { m.after_sum([](Row& row) { row.sum *= row.l_factor; }); },
      [=](const Attention& m) { return of_several(m) && m.given_S == nullptr; });
  table.add(
      "maximum-of-the-last", "the maximum is that of the last score of a {tile}, not of all",
      [](Attention& m) { m.after_maximum([right = m](Row& row) { right.raise(row, row.S.back()); }); },
      [](const Attention& m) { return m.step != 1 && m.tiling.key_warps <= 1; });  // else of its warps
  table.add("l-overwritten", "each {tile}'s sum overwrites l instead of adding to it",
            [](Attention& m) { m.after_factors([](Row& row) { row.l_factor = 0; }); });
  table.add("tile-maximum", "m is the maximum of the last {tile} alone, not the running one",
            [](Attention& m) { m.after_maximum([](Row& row) { row.m = row.subtracted = row.m_tile; }); });
  table.add("tile-maximum", "P is computed with the maximum of its own {tile}, not with the running one",
            [](Attention& m) { m.after_maximum([](Row& row) { row.subtracted = row.m_tile; }); });
  table.add(
      "tile-maximum",
      "P is computed with the maximum of its own {tile}, not with the m that is kept: where a row sees no key of it, "
      "that is −∞ − (−∞)",
      [](Attention& m) {
        m.after_probabilities([right = m](Row& row) {
          for (std::size_t j = 0; j < row.P.size(); ++j) row.P[j] = right.exponential(row.S[j] - row.m_tile);
        });
      },
      // Of given scores a row without keys that computes NaN gives the same.
      [](const Attention& m) { return m.given_S == nullptr; });
  table.add("m-not-kept", "m is not kept from one {tile} to the next, so that nothing accumulated survives",
            [](Attention& m) { m.after_step([](Row& row) { row.m = -infinity; }); });
  return table;
}

Table nothing() {
  Table table;
  table.add_constant("all-zeros", "every element is 0", [](Attention& m) { m.heads_written = 0, m.unwritten = 0; });
  table.add_constant("not-written", "nothing was written, or only added to what was there",
                     [](Attention& m) { m.heads_written = 0; });
  return table;
}

std::vector<judge::Mistake> score_mistakes(const Problem& problem) {
  return judge::made<Attention>(scores_alone(), Attention(problem, {}, float32_precision()),
                                [](const Attention& m) { return m.S(); });
}
std::vector<judge::Mistake> softmax_mistakes(const Tensor<float>& S) {
  return judge::made<Attention>(softmax_alone(), Attention(S), [](const Attention& m) { return m.P(); });
}
std::vector<judge::Mistake> row_lse_mistakes(const Tensor<float>& S) {
  const auto LSE = [](const Attention& m) { return m.LSE(); };
  Attention at_once(S), one_by_one(S, 1);
  one_by_one.words["{tile}"] = "score";
  std::vector<judge::Mistake> mistakes;
  judge::make<Attention>(mistakes, row_lse_alone(), at_once, LSE);
  judge::make<Attention>(mistakes, running(), one_by_one, LSE);
  judge::make<Attention>(mistakes, row_lse_last(), at_once, LSE);
  return mistakes;
}
std::vector<judge::Mistake> product_mistakes(const Tensor<float>& P, const Tensor<float>& V) {
  return judge::made<Attention>(product_alone(), product_of(P, V), [](const Attention& m) { return m.O(); });
}

}  // namespace workbook::test::ch01
