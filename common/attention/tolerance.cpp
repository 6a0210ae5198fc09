// notes/numerics.md derives every constant; the comments give the short reason. All errors are to first order in u and
// independent unless stated otherwise, so they add in quadrature: the code sums squares.

#include "common/attention/tolerance.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/attention/positions.hpp"
#include "common/attention/rows.hpp"

namespace workbook {
namespace {

// An element may have an error of λ "standard units". For independent errors of mean 0, the probability of a larger
// error is at most 2·exp(-λ²/2) = 3.0e-8 (Azuma-Hoeffding).
constexpr double lambda = 6;
// The mean square of an error that is uniform in [-u, u] is u²/3.
constexpr double mean_square = 1.0 / 3;
// The root mean square may exceed its expectation under that model by this factor.
constexpr double rms_safety = 2;
// A function accurate to 2 units in the last place has a relative error of at most 4u, since one such unit is at most
// 2u.
constexpr double two_ulp = 4;
// tanh(x) = 1 - 2 / (1 + e^2x), absolute error: 2 / (1 + e^2x) is at most 2. Its errors are those of the exponential
// with its rounded argument, of which at most a quarter enters, of a sum, and of a division to two units in the last
// place. Then come the subtraction, the multiplication by the cap and the division by it.
constexpr double of_tanh = two_ulp / 2 + 1 + 2 + 2 * two_ulp + 3;
// A tensor core adds (at least) 4 products at a time to the running sum. It truncates each product and the sum, and
// each truncation removes on average u of the largest addend.
constexpr double cuts_per_term = 5.0 / 4;

constexpr double float32_roundoff = 0x1p-24, float16_roundoff = 0x1p-11, bfloat16_roundoff = 0x1p-8;
constexpr double e4m3_roundoff = 0x1p-4;
constexpr double float32_underflow = 0x1p-126;  // flushed to zero, as kernels do

double square(double x) {
  return x * x;
}

/// The possible errors of one element.
struct Error {
  double random_square = 0;  ///< Σ (coefficient · unit roundoff)² over all independent roundings
  double bias = 0;           ///< errors that may all have the same sign
};

/// Collects one tensor's errors, element by element, and computes the bounds.
class Collector {
 public:
  explicit Collector(const std::array<std::int64_t, 4>& sizes) { bounds_.element = Tensor<double>(sizes); }

  void add(std::size_t index, const Error& error) {
    bounds_.element.values[index] = lambda * std::sqrt(error.random_square) + error.bias;
    random_sum_ += error.random_square;
    bias_sum_ += square(error.bias);
    row_sum_ += error.random_square;
  }
  /// Ends a row. Elements of a row may share errors (of m, l and P); different rows may not.
  void end_row() {
    worst_row_ = std::max(worst_row_, row_sum_);
    row_sum_ = 0;
  }
  Bounds finish(std::string origin) {
    const double count = double(bounds_.element.values.size());
    // The root mean square concentrates around its expectation; a row that dominates it adds λ times its share.
    bounds_.rms = rms_safety * std::sqrt(mean_square) *
                      (std::sqrt(random_sum_ / count) + lambda * std::sqrt(worst_row_ / count)) +
                  std::sqrt(bias_sum_ / count);
    bounds_.origin = std::move(origin);
    return std::move(bounds_);
  }

 private:
  Bounds bounds_;
  double random_sum_ = 0, bias_sum_ = 0, row_sum_ = 0, worst_row_ = 0;
};

/// The errors of one row's softmax, in units of `accumulate`. n keys are visible; `size` and `spread` are the row's
/// score_size and score_spread.
struct RowErrors {
  double own_square;       ///< independent error of each P_ij: of the score, of s - m, of exp
  double shared_square;    ///< error of a score that all keys share: of a scaled Q, of a stored multiple of m
  double rescale_square;   ///< error of the weight of all keys before a tile: the factors exp(m_old - m_new)
  double sum_square;       ///< relative error of l
  double truncation_bias;  ///< error of all scores with the same sign, from truncation by tensor cores
};

/// The unit of the sums within matmuls, in units of float32's: tensor cores may add with fewer bits.
double unit_of_sums(double cut) {
  return std::max(1.0, cut / float32_roundoff);
}

RowErrors row_errors(double size, double spread, double n, double d, double cut) {
  return {
      // The score: d multiplications and d-1 sums of at most `size`, then the factors scale and log2(e). The argument
      // of exp: the subtraction, and the multiplication by log2(e). Then exp itself.
      .own_square = (d * square(unit_of_sums(cut)) + 2) * square(size) + 2 * square(spread) + square(two_ulp),
      // Q scaled once for all keys; m is a score too.
      .shared_square = 2 * square(size),
      // n - 1 merges join n keys, in any order, and each rescales at most one side. Near 1 an ulp is only u. The
      // exponents add up to at most `spread`, which limits how many factors are far from 1. Then come their arguments.
      .rescale_square = square(two_ulp / 2) * (n + 5 * spread) + 2 * square(spread),
      // n sums and n rescalings.
      .sum_square = 2 * n,
      .truncation_bias = cuts_per_term * d * size * cut / float32_roundoff,
  };
}

/// The errors of rotating Q and K. In float: multiplications by a rounded cosine and sine and a sum, which change an
/// element by at most 3u of its pair's length. Then the rounding to the element type: each element of Q affects all
/// scores of a row, each element of K one score. `rotation` is the row's.
void add_rotation(RowErrors& errors, const Problem& problem, const Precision& precision, double size, double rotation) {
  if (!problem.mask.rope) return;
  const double of_each = square(3 * size) + square(precision.input / precision.accumulate * rotation);
  errors.own_square += of_each, errors.shared_square += of_each;
}

/// exp(ε) - 1 is ε only to first order: P and l may each have an additional factor exp(ε). ε is the largest error of a
/// score in this row. From 1 on the scores have no correct digits, and no bound is meaningful.
double second_order(const RowErrors& row, double spread, double u) {
  const double error = lambda * u * std::sqrt(row.own_square + row.shared_square + row.rescale_square) +
                       u * (row.truncation_bias + spread + two_ulp);
  return std::exp(2 * std::min(error, 1.0));
}

std::string describe(const std::string& what, const Problem& problem) {
  return fmt::format("{}, N={}, d={}", what, problem.shape.Nk, problem.shape.d);
}

}  // namespace

Precision float32_precision() {
  return {.element = float32,
          .input = float32_roundoff,
          .accumulate = float32_roundoff,
          .probability = 0,
          .output = float32_roundoff,
          .underflow = float32_underflow};
}

Precision float16_precision() {
  return {.element = float16,
          .input = float16_roundoff,
          .accumulate = float32_roundoff,
          .probability = float16_roundoff,
          .output = float16_roundoff,
          .cut = float32_roundoff,
          .underflow = 0x1p-25};  // subnormal numbers are multiples of 2^-24
}

Precision bfloat16_precision() {
  return {.element = bfloat16,
          .input = bfloat16_roundoff,
          .accumulate = float32_roundoff,
          .probability = bfloat16_roundoff,
          .output = bfloat16_roundoff,
          .cut = float32_roundoff,
          .underflow = float32_underflow};
}

Precision float8_precision() {
  return {.element = float8,
          .input = e4m3_roundoff,
          .accumulate = float32_roundoff,
          .probability = e4m3_roundoff,
          .output = float16_roundoff,
          .cut = 0x1p-14,         // half of the last of 13 bits
          .underflow = 0x1p-18};  // of P·2^8: subnormal numbers are multiples of 2^-9
}

Bounds output_bounds(const Forward& oracle, const Problem& problem, const Precision& precision) {
  const Shape& shape = problem.shape;
  const double u = precision.accumulate, d = double(shape.d);

  // Σ_j V_jc² over all keys, for each head of V and column, bounds the effect of underflow of the P_ij.
  std::vector<double> V_squares(shape.B * shape.Hkv * shape.d);
  for (std::int64_t head = 0; head < shape.B * shape.Hkv; ++head)
    for (std::int64_t j = 0; j < shape.Nk; ++j)
      for (std::int64_t c = 0; c < shape.d; ++c)
        V_squares[head * shape.d + c] += square(problem.V.values[(head * shape.Nk + j) * shape.d + c]);

  Collector collector(oracle.O.sizes);
  for (std::int64_t row = 0; row < shape.lse_size(); ++row) {
    const double n = double(problem.mask.count(shape, row));
    if (n == 0) continue;  // O must be exactly 0
    const double score_spread = oracle.score_spread.values[row];
    RowErrors errors = row_errors(oracle.score_size.values[row], score_spread, n, d, precision.cut);
    add_rotation(errors, problem, precision, oracle.score_size.values[row], oracle.rotation.values[row]);
    const double inflate = second_order(errors, score_spread, u), of_kept = problem.mask.dropped > 0 ? 2 : 0;

    for (std::int64_t c = 0; c < shape.d; ++c) {
      const std::size_t i = row * shape.d + c;
      const double O = oracle.O.values[i];
      if (!std::isfinite(O)) continue;  // bound 0
      const double size = oracle.O_size.values[i], quadratic = oracle.O_quadratic.values[i];
      const double spread = oracle.O_spread.values[i], spread_quadratic = oracle.O_spread_quadratic.values[i];
      const double accumulated =
          errors.own_square * square(spread_quadratic) +                // P_ij, independently
          errors.shared_square * square(spread) +                       // all P_ij of a row together
          errors.rescale_square * square(spread / 2) +                  // all P_ij before a tile
          2 * square(quadratic) +                                       // p·V, and p/l if P is stored
          n * square(unit_of_sums(precision.cut) * size) +              // n sums
          n * square(size) +                                            // n rescalings of O
          (errors.sum_square + square(two_ulp) + of_kept) * square(O);  // l, the division, 1/(1 - p)
      const double stored = square(precision.probability * quadratic) + square(precision.output * O) +
                            square(precision.underflow * problem.mask.kept_scale()) *
                                (V_squares[shape.kv_head(row / shape.Nq) * shape.d + c] + n + 1);
      // The stored constant scale·log2(e) has an error of at most u, common to all scores. exp may have a common error
      // for all keys except the largest, where exp(0) = 1 is exact.
      const double bias =
          (errors.truncation_bias + score_spread + two_ulp / 2) * spread + cuts_per_term * n * size * precision.cut / u;
      collector.add(
          i, {.random_square = square(inflate) * (square(u) * accumulated + stored), .bias = inflate * u * bias});
    }
    collector.end_row();
  }
  return collector.finish(describe(name(precision.element) + " rounding of S, P and O", problem));
}

/// One LSE = m + log(l): an error of a score has the weight P_ij, and an error of l is relative.
static Error lse_error(const RowErrors& errors, double lse, double P_quadratic, double size, double spread, double n,
                       double u) {
  const double inflate = second_order(errors, spread, u);
  const double accumulated = errors.own_square * square(P_quadratic) + errors.shared_square + errors.rescale_square +
                             errors.sum_square +
                             square(two_ulp * (1 + std::log(n))) +  // log, at most log(n); near 0 an absolute error
                             2 * square(spread) +                   // m times scale, and times log2(e)
                             2 * square(lse);                       // m + log(l), and the multiplication by ln(2)
  // Here a systematic error of exp does not cancel, nor do the errors of the constants scale·log2(e) and ln(2).
  const double bias = errors.truncation_bias + two_ulp + size + std::abs(lse);
  return {.random_square = square(inflate * u) * accumulated, .bias = inflate * u * bias};
}

Bounds lse_bounds(const Forward& oracle, const Problem& problem, const Precision& precision) {
  const Shape& shape = problem.shape;
  Collector collector(oracle.lse.sizes);
  for (std::int64_t row = 0; row < shape.lse_size(); ++row) {
    const double n = double(problem.mask.count(shape, row)) + (problem.mask.sink.empty() ? 0 : 1);
    const double lse = oracle.lse.values[row];
    if (!std::isfinite(lse)) continue;  // -inf must be -inf
    const double size = oracle.score_size.values[row], spread = oracle.score_spread.values[row];
    RowErrors errors = row_errors(size, spread, n, double(shape.d), precision.cut);
    add_rotation(errors, problem, precision, size, oracle.rotation.values[row]);
    collector.add(row, lse_error(errors, lse, oracle.P_quadratic.values[row], size, spread, n, precision.accumulate));
    collector.end_row();
  }
  return collector.finish(describe(precision.element == float32
                                       ? "float32 rounding of S, l and the LSE"
                                       : "float32 rounding of S, l and the LSE, truncated sums",
                                   problem));
}

/// A sum of `terms` products, whose squares add up to at most size²; terms - 1 sums of at most that size; and `more`
/// further roundings of the sum.
static Bounds sum_bounds(const Tensor<double>& sizes, std::int64_t terms, int more, std::string origin) {
  Collector collector(sizes.sizes);
  for (std::size_t i = 0; i < sizes.values.size(); ++i) {
    if (std::isfinite(sizes.values[i]))
      collector.add(i, {.random_square = double(terms + more) * square(float32_roundoff * sizes.values[i]) +
                                         double(terms) * square(float32_underflow)});
    if ((i + 1) % sizes.sizes[3] == 0) collector.end_row();
  }
  return collector.finish(std::move(origin));
}

Bounds score_bounds(const Tensor<double>& sizes, std::int64_t d) {
  return sum_bounds(sizes, d, /*more=*/1, fmt::format("float32 rounding of a sum of d={} products", d));  // the scale
}

Bounds product_bounds(const Tensor<double>& sizes, std::int64_t terms) {
  return sum_bounds(sizes, terms, /*more=*/0, fmt::format("float32 rounding of a sum of {} products", terms));
}

/// A row of given scores; scores other than -inf are visible.
struct GivenRow {
  double n = 0, lse = -std::numeric_limits<double>::infinity();
  double size = 0, spread = 0, P_quadratic = 0;  ///< as in Forward, with |s| as the size of a score

  RowErrors errors() const { return row_errors(size, spread, n, /*d=*/0, /*cut=*/0); }
};

static GivenRow given_row(const double* scores, std::int64_t keys) {
  GivenRow row;
  double highest = row.lse, lowest = -row.lse, l = 0, P_squares = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    if (scores[j] == -std::numeric_limits<double>::infinity()) continue;
    row.n += 1;
    highest = std::max(highest, scores[j]);
    lowest = std::min(lowest, scores[j]);
    row.size = std::max(row.size, std::abs(scores[j]));
  }
  if (row.n == 0) return row;
  for (std::int64_t j = 0; j < keys; ++j) l += std::exp(scores[j] - highest);
  row.lse = highest + std::log(l);
  row.spread = std::max(highest - lowest, std::abs(highest));
  for (std::int64_t j = 0; j < keys; ++j) P_squares += std::exp(2 * (scores[j] - row.lse));
  row.P_quadratic = std::sqrt(P_squares);
  return row;
}

Bounds softmax_bounds(const Tensor<double>& scores, const Tensor<double>& P) {
  if (scores.sizes != P.sizes) fail_input("softmax_bounds: scores and P have different sizes");
  const std::int64_t keys = scores.sizes[3];
  const double u = float32_roundoff;
  Collector collector(P.sizes);
  for (std::size_t first = 0; first < P.values.size(); first += keys) {
    const GivenRow row = given_row(&scores.values[first], keys);
    if (row.n > 0) {
      const RowErrors errors = row.errors();
      const double inflate = second_order(errors, row.spread, u);
      // P_j changes by its own error minus the mean error of all; then l, the division, and the stored result.
      const double relative_square = errors.own_square * (1 + square(row.P_quadratic)) + errors.shared_square +
                                     errors.rescale_square + errors.sum_square + square(two_ulp) + 1;
      const double relative_bias = 2 * (row.spread + two_ulp);  // log2(e) and exp, in P_j and in l
      for (std::int64_t j = 0; j < keys; ++j) {
        const double p = inflate * u * P.values[first + j];
        if (!std::isfinite(p) || scores.values[first + j] == -std::numeric_limits<double>::infinity()) continue;
        collector.add(first + j, {.random_square = square(p) * relative_square + square(float32_underflow),
                                  .bias = p * relative_bias});
      }
    }
    collector.end_row();
  }
  return collector.finish(fmt::format("float32 rounding of exp and of a sum of {} terms", keys));
}

Bounds row_lse_bounds(const Tensor<double>& scores) {
  const std::int64_t keys = scores.sizes[3];
  Collector collector({scores.sizes[0], scores.sizes[1], scores.sizes[2], 1});
  for (std::size_t i = 0; i * keys < scores.values.size(); ++i) {
    const GivenRow row = given_row(&scores.values[i * keys], keys);
    if (!std::isfinite(row.lse)) continue;
    collector.add(i, lse_error(row.errors(), row.lse, row.P_quadratic, row.size, row.spread, row.n, float32_roundoff));
    collector.end_row();
  }
  return collector.finish(fmt::format("float32 rounding of exp and of a sum of {} terms", keys));
}

namespace {

/// The errors of one row of a gradient, (d,), summed over the terms w_k X_kc that it consists of.
struct RowOfErrors {
  std::vector<double> random_square, bias, size;
  double terms = 0;

  explicit RowOfErrors(std::int64_t d) : random_square(d), bias(d), size(d) {}
  /// Adds a term: a weight, with an independent error of mean square `square` and a bias, times X, given as |X|.
  void add(double weight, double weight_square, double weight_bias, const double* __restrict X) {
    terms += 1;
    const double weight_size = std::abs(weight);
    double* __restrict squares = random_square.data(), * __restrict biases = bias.data(), * __restrict sizes = size.data();
    for (std::size_t c = 0; c < size.size(); ++c) {
      const double x = X[c];
      squares[c] += weight_square * (x * x);
      biases[c] += weight_bias * x;
      sizes[c] += weight_size * x;
    }
  }
  /// The error of the whole gradient: the sum of its terms, times `factor`, stored. rotated: rotated back before it is
  /// stored. Then the X are lengths of pairs. The error of a pair does not depend on its rotation, except for a bias
  /// common to both elements. The rotation itself has an error of 3u of the pair's length.
  Error finish(std::size_t c, double gradient, double factor, const Precision& precision, bool rotated) const {
    const double u = precision.accumulate, Z = factor * size[c];
    return {.random_square = square(factor) * random_square[c] +
                             square(u) * ((terms + (rotated ? 10 : 1)) * square(Z)) + square(u * gradient) +
                             square(precision.output * gradient) + square(precision.underflow),
            .bias = factor * bias[c] + cuts_per_term * terms * precision.cut * Z * (rotated ? std::sqrt(2.0) : 1)};
  }
};

/// The contribution of a (query, key) pair to a gradient, and the quantities that determine its errors.
struct Pair {
  double P, dS, dP_size;
  double kept = 1;              ///< dropout factor of P in dV, and of dP
  double derivative = 1;        ///< of the score modification
  double derivative_error = 0;  ///< change of dS caused by the derivative's own error, in units of `accumulate`
  double dS_of_P = 0;           ///< change of dS caused by a change of P
};
/// Values that the pairs of one query share.
struct QueryErrors {
  double D, D_size;                  ///< Σ_c dO_ic O_ic, and of the absolute values
  double own_square, shared_square;  ///< of P_ij, relative and in units of `accumulate`, as in RowErrors
  double P_bias, inflate;

  /// D is a sum of d products, whose squares add up to at most D_size², with d-1 sums of at most D_size.
  double D_square(double d) const { return d * square(D_size); }
};

/// The errors of the gradients, one head at a time: dQ in parallel over queries, and dK and dV over keys, so that each
/// row has one writer and a fixed order of summation on any number of cores. Queries are processed in blocks, whose
/// pairs are stored for the keys.
class GradientErrors {
 public:
  GradientErrors(const Gradients& oracle, const Problem& problem, const Tensor<double>& dO, const Saved& saved,
                 const Precision& precision)
      : oracle_(oracle),
        problem_(problem),
        dO_(dO.values),
        saved_(saved),
        precision_(precision),
        Q_(rotated(problem.Q, problem)),
        K_(rotated(problem.K, problem)),
        V_(to_double(problem.V.values)),
        Q_size_(sizes_of(Q_, problem)),
        K_size_(sizes_of(K_, problem)),
        V_size_(absolute(V_)),
        dO_size_(absolute(dO_)),
        pairs_(std::size_t(std::min(kBlock, problem.shape.lse_size()) * problem.shape.Nk)),
        queries_(std::size_t(problem.shape.lse_size())),
        dQ_(problem.Q.values.size()) {}

  GradientBounds bounds() {
    const auto& [B, H, Hkv, Nq, Nk, d] = problem_.shape;
    Collector dQ(oracle_.dQ.sizes), dK(oracle_.dK.sizes), dV(oracle_.dV.sizes), D(saved_.lse.sizes);
    // The queries of all heads that share a K/V head, consecutively.
    const std::int64_t queries = H / Hkv * Nq;
    for (std::int64_t head = 0; head < B * Hkv; ++head) {
      std::vector<RowOfErrors> dK_rows(Nk, RowOfErrors(d)), dV_rows(Nk, RowOfErrors(d));
      for (std::int64_t first = head * queries; first < (head + 1) * queries; first += kBlock) {
        const std::int64_t count = std::min(kBlock, (head + 1) * queries - first);
        for_every_row(count, 0, [&](std::int64_t row) { form_query(head, first + row, row); });
        for_every_row(Nk, 0, [&, Nk = Nk](std::int64_t key) {
          for (std::int64_t row = 0; row < count; ++row) {
            if (problem_.mask.attends(problem_.shape, first + row, key))
              add_to_key(dK_rows[key], dV_rows[key], first + row, pairs_[row * Nk + key]);
          }
        });
      }
      for (std::int64_t i = head * queries; i < (head + 1) * queries; ++i) {
        D.add(i, {.random_square = square(precision_.accumulate) * queries_[i].D_square(double(d)) +
                                   double(d) * square(float32_underflow)});
        D.end_row();
        const bool attends_any = problem_.mask.count(problem_.shape, i) > 0;
        for (std::int64_t c = 0; c < d && attends_any; ++c) dQ.add(i * d + c, dQ_[i * d + c]);
        dQ.end_row();  // a fully masked query has dQ = 0 exactly, and contributes nothing to dK and dV
      }
      for (std::int64_t j = 0; j < Nk; ++j) {
        for (std::int64_t c = 0; c < d && dV_rows[j].terms > 0; ++c) {  // a key masked for all queries: exactly 0
          const std::size_t at = (head * Nk + j) * d + c;
          dK.add(at, dK_rows[j].finish(c, oracle_.dK.values[at], factor(), precision_, problem_.mask.rope));
          dV.add(at, dV_rows[j].finish(c, oracle_.dV.values[at], 1, precision_, /*rotated=*/false));
        }
        dK.end_row();
        dV.end_row();
      }
    }
    const auto origin = [&](const char* what) {
      return describe(name(precision_.element) + " rounding of " + what, problem_);
    };
    return {dQ.finish(origin("P, dS and dQ")),
            dK.finish(origin("P, dS and dK")),
            dV.finish(origin("P and dV")),
            D.finish(fmt::format("float32 rounding of a sum of d={} products", d)),
            {}};
  }

 private:
  static constexpr std::int64_t kBlock = 256;

  static std::vector<double> rotated(const Tensor<float>& tensor, const Problem& problem) {
    std::vector<double> values = to_double(tensor.values);
    rotate_rows(values, problem, tensor.sizes[2]);
    return values;
  }
  double of_kept() const { return problem_.mask.dropped > 0 ? 2 : 0; }  ///< the multiplication by 1/(1 - p)
  double factor() const { return std::abs(double(problem_.scale)); }
  double truncation() const {  // in units of the sums' rounding
    return cuts_per_term * double(problem_.shape.d) * precision_.cut / precision_.accumulate;
  }

  /// Computes the pairs of query i, numbered through (B, H, Nq), with the keys of its K/V head into row `row` of
  /// pairs_, and the errors of its dQ.
  void form_query(std::int64_t head, std::int64_t i, std::int64_t row) {
    const std::int64_t d = problem_.shape.d, Nk = problem_.shape.Nk;
    const double *dO = &dO_[i * d], *dO_size = &dO_size_[i * d], lse = saved_.lse.values[i];
    QueryErrors& errors = queries_[i];
    const std::vector<double> O(&saved_.O.values[i * d], &saved_.O.values[i * d] + d), O_size = absolute(O);
    errors.D = dot(dO, O.data(), d), errors.D_size = dot(dO_size, O_size.data(), d);
    double A = 0, spread = 0,
           rotation =
               0;  // bounds on a score, its distance from the LSE, and its change by roundings of rotated Q and K
    problem_.mask.for_keys(problem_.shape, i, [&](std::int64_t j) {
      const std::int64_t key = head * Nk + j;
      const double products = problem_.scale * dot(&Q_[i * d], &K_[key * d], d);
      const double score = problem_.mask.changed(problem_.shape, i, j, products), P = std::exp(score - lse);
      const double size = factor() * dot(&Q_size_[i * d], &K_size_[key * d], d), keep = kept(problem_, i, j);
      if (problem_.mask.rope) rotation = std::max(rotation, factor() * rounded_products(&Q_[i * d], &K_[key * d], d));
      A = std::max(A, problem_.mask.size(problem_.shape, i, j, size));
      spread = std::max(spread, std::abs(score - lse));
      const double difference = keep * dot(dO, &V_[key * d], d) - errors.D, before = P * difference,
                   slope = problem_.mask.derivative(products);
      pairs_[row * Nk + j] = {P,
                              before * slope,
                              keep * dot(dO_size, &V_size_[key * d], d),
                              keep,
                              slope,
                              std::abs(before) * derivative_error(slope, size),
                              difference * slope};
    });
    errors.own_square = (double(d) + 2) * square(A) + 2 * square(spread) + square(two_ulp);
    errors.shared_square = square(A) + 2 * square(lse);  // a scaled Q; LSE·log2(e), and the LSE in exp's argument
    const double of_rotation = square(3 * A) + square(precision_.input / precision_.accumulate * rotation);
    if (problem_.mask.rope) errors.own_square += of_rotation, errors.shared_square += of_rotation;
    errors.P_bias = truncation() * A + A + std::abs(lse) + two_ulp;  // scale·log2(e), log2(e), exp
    const double u = precision_.accumulate;
    const double error = lambda * u * std::sqrt(errors.own_square + errors.shared_square) + u * errors.P_bias;
    errors.inflate = std::exp(2 * std::min(error, 1.0));
    form_dQ(head, i, &pairs_[row * Nk]);
  }

  /// The absolute error of 1 - tanh², in units of `accumulate`: tanh has the absolute errors of its exponential and its
  /// division, and 1 - tanh² times the error of its argument, the score. Then come the square and the subtraction.
  double derivative_error(double derivative, double score_size) const {
    const double cap = problem_.mask.softcap;
    if (cap <= 0) return 0;
    const double tanh = std::sqrt(1 - derivative);
    const double of_argument = (std::sqrt(double(problem_.shape.d) + 2) + truncation()) * score_size / cap * derivative;
    return 2 * tanh * (of_tanh + of_argument) + 2;
  }
  /// The random square of dS without its rounding, in units of `accumulate`: dP has d multiplications and d-1 sums of
  /// at most dP_size. Then come the subtraction, the multiplication by P, and that by the derivative, if there is one.
  double dS_own(const QueryErrors& errors, const Pair& pair) const {
    return (errors.own_square + 2) * square(pair.dS) +
           (double(problem_.shape.d) + of_kept()) * square(pair.P * pair.derivative * pair.dP_size) +
           square(pair.derivative_error);
  }
  double dS_bias(const QueryErrors& errors, const Pair& pair) const {
    return precision_.accumulate * errors.inflate *
           (errors.P_bias * std::abs(pair.dS) + truncation() * pair.P * pair.derivative * pair.dP_size);
  }
  double unit(const QueryErrors& errors) const { return square(precision_.accumulate * errors.inflate); }
  /// The rounding of stored P or dS.
  double stored(double x) const { return square(precision_.probability * x) + square(precision_.underflow); }
  /// The underflow of dS's P, the rounding of dS and, if rotated and rounded, of its operand.
  double stored_for_product(const Pair& pair) const {
    return square(float32_underflow * pair.dS_of_P) + stored(pair.dS) +
           (problem_.mask.rope ? square(precision_.input * pair.dS) : 0);
  }

  void form_dQ(std::int64_t head, std::int64_t i, const Pair* pairs) {
    const std::int64_t d = problem_.shape.d, Nk = problem_.shape.Nk;
    const QueryErrors& errors = queries_[i];
    RowOfErrors sum(d);
    std::vector<double> P_K(d);  // Σ_j P_ij K_jc times the derivative: the effect of an error of D
    problem_.mask.for_keys(problem_.shape, i, [&](std::int64_t j) {
      const Pair& pair = pairs[j];
      const std::int64_t key = (head * Nk + j) * d;
      sum.add(pair.dS, unit(errors) * dS_own(errors, pair) + stored_for_product(pair), dS_bias(errors, pair),
              &K_size_[key]);
      add_scaled(P_K.data(), pair.P * pair.derivative, &K_[key], d);
    });
    P_K = sizes_of(P_K, problem_);  // bound on its effect on an element of dQ after the rotation back
    for (std::int64_t c = 0; c < d; ++c) {
      const double gradient = oracle_.dQ.values[i * d + c];
      Error& total = dQ_[i * d + c] = sum.finish(c, gradient, factor(), precision_, problem_.mask.rope);
      total.random_square += unit(errors) * (errors.shared_square * square(gradient) +
                                             errors.D_square(double(d)) * square(factor() * P_K[c]));
    }
  }

  /// The contribution of query i to a row of dK and of dV. Errors of different queries are independent.
  void add_to_key(RowOfErrors& dK, RowOfErrors& dV, std::int64_t i, const Pair& pair) const {
    const std::int64_t d = problem_.shape.d;
    const QueryErrors& errors = queries_[i];
    const double shared =
        errors.shared_square * square(pair.dS) + errors.D_square(double(d)) * square(pair.P * pair.derivative);
    dK.add(pair.dS, unit(errors) * (dS_own(errors, pair) + shared) + stored_for_product(pair), dS_bias(errors, pair),
           &Q_size_[i * d]);
    const double kept_P = pair.kept * pair.P;
    dV.add(kept_P,
           unit(errors) * (errors.own_square + errors.shared_square + of_kept()) * square(kept_P) +
               square(pair.kept) * stored(pair.P),
           precision_.accumulate * errors.inflate * errors.P_bias * kept_P, &dO_size_[i * d]);
  }

  const Gradients& oracle_;
  const Problem& problem_;
  const std::vector<double>& dO_;
  const Saved& saved_;
  const Precision& precision_;
  const std::vector<double> Q_, K_, V_, Q_size_, K_size_, V_size_, dO_size_;
  std::vector<Pair> pairs_;           ///< (kBlock, Nk)
  std::vector<QueryErrors> queries_;  ///< (B, H, Nq)
  std::vector<Error> dQ_;             ///< (B, H, Nq, d)
};

}  // namespace

/// dsink of a head is a float sum over its rows of D times the exponential of sink - LSE, whose terms are rounded in
/// units of log2.
static Bounds sink_bounds(const Gradients& oracle, const Problem& problem, const Tensor<double>& dO,
                          const Saved& saved) {
  const auto& [B, H, Hkv, Nq, Nk, d] = problem.shape;
  const double u = float32_roundoff;
  Collector collector(sink_sizes(problem));
  for (std::int64_t head = 0; head < H; ++head) {
    double random = 0, bias = 0, size = 0;
    for (std::int64_t n = 0; n < B * Nq; ++n) {
      const std::int64_t i = (n / Nq * H + head) * Nq + n % Nq;
      const double sink = problem.mask.sink[head], lse = saved.lse.values[i];
      double D = 0, D_size = 0;
      for (std::int64_t c = i * d; c < (i + 1) * d; ++c) {
        const double product = dO.values[c] * saved.O.values[c];
        D += product, D_size += std::abs(product);
      }
      const double P = lse == -std::numeric_limits<double>::infinity() ? 0 : std::exp(sink - lse);
      random += square(P * D) * (2 * square(sink) + 2 * square(lse) + square(sink - lse) + square(two_ulp) + 1) +
                square(P) * double(d) * square(D_size);
      bias += P * std::abs(D) * (std::abs(sink) + std::abs(lse) + two_ulp);  // log2(e), exp
      size += P * std::abs(D);
    }
    random += double(B * Nq) * square(size) + square(oracle.dsink.values[head]);
    collector.add(std::size_t(head),
                  {.random_square = square(u) * random + square(float32_underflow), .bias = u * bias});
    collector.end_row();
  }
  return collector.finish(fmt::format("float32 rounding of a sum of {} products of P and D", B * Nq));
}

GradientBounds gradient_bounds(const Gradients& oracle, const Problem& problem, const Tensor<double>& dO,
                               const Saved& saved, const Precision& precision) {
  GradientBounds bounds = GradientErrors(oracle, problem, dO, saved, precision).bounds();
  if (!problem.mask.sink.empty()) bounds.dsink = sink_bounds(oracle, problem, dO, saved);
  return bounds;
}

}  // namespace workbook
