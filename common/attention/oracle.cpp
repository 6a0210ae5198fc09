#include "common/attention/oracle.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "common/attention/positions.hpp"
#include "common/attention/rows.hpp"

namespace workbook {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

template <class T>
void check_sizes(const char* name, const Tensor<T>& tensor, std::array<std::int64_t, 4> sizes) {
  if (tensor.sizes != sizes || std::int64_t(tensor.values.size()) != sizes[0] * sizes[1] * sizes[2] * sizes[3])
    fail_input("{}: sizes {} with {} values; allowed for the problem's shape: {}", name, sizes_text(tensor.sizes),
               tensor.values.size(), sizes_text(sizes));
}

void check_tensors(const Problem& problem) {
  const Shape& shape = problem.shape;
  check(shape, /*any_d=*/true);
  check_sizes("Q", problem.Q, {shape.B, shape.H, shape.Nq, shape.d});
  check_sizes("K", problem.K, {shape.B, shape.Hkv, shape.Nk, shape.d});
  check_sizes("V", problem.V, {shape.B, shape.Hkv, shape.Nk, shape.d});
}

/// P_i = softmax of the scores of one row, in place. A sink is an additional score without an element of P. Returns the
/// LSE.
double softmax(std::vector<double>& row, double sink) {
  double m = sink;
  for (const double score : row) m = std::max(m, score);
  double l = std::exp(sink - m);
  for (double& score : row) {
    score = std::exp(score - m);
    l += score;
  }
  for (double& p : row) p /= l;
  return m + std::log(l);
}

/// Adds one key's contribution to the magnitudes of a row of O, for d columns: p = P_ij, w = P_ij after dropout, V =
/// V_j.
void add_magnitudes(double p, double w, const double* __restrict V, const double* __restrict O, double* __restrict size,
                    double* __restrict quadratic, double* __restrict spread, double* __restrict spread_quadratic,
                    std::int64_t d) {
  for (std::int64_t c = 0; c < d; ++c) {
    const double value = w * V[c], distance = value - p * O[c];
    size[c] += std::abs(value);
    quadratic[c] += value * value;
    spread[c] += std::abs(distance);
    spread_quadratic[c] += distance * distance;
  }
}

}  // namespace

Forward forward_oracle(const Problem& problem, unsigned threads) {
  check_tensors(problem);
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  const double scale = problem.scale;
  std::vector<double> Q = to_double(problem.Q.values), K = to_double(problem.K.values);
  const std::vector<double> V = to_double(problem.V.values);
  rotate_rows(Q, problem, Nq), rotate_rows(K, problem, Nk);
  const std::vector<double> Q_absolute = sizes_of(Q, problem), K_absolute = sizes_of(K, problem);

  const std::array<std::int64_t, 4> O_sizes{B, H, Nq, d}, row_sizes{B, H, Nq, 1};
  Forward result{.O = Tensor<double>(O_sizes),
                 .lse = Tensor<double>(row_sizes, -infinity),
                 .score_size = Tensor<double>(row_sizes),
                 .score_spread = Tensor<double>(row_sizes),
                 .O_size = Tensor<double>(O_sizes),
                 .O_quadratic = Tensor<double>(O_sizes),
                 .O_spread = Tensor<double>(O_sizes),
                 .O_spread_quadratic = Tensor<double>(O_sizes),
                 .P_quadratic = Tensor<double>(row_sizes),
                 .rotation = Tensor<double>(row_sizes)};

  // `row` is numbered through (B, H, Nq). P holds the scores, then the probabilities, of the n keys that it attends to.
  const auto forward_row = [&, Nq = Nq, Nk = Nk, d = d, P = std::vector<double>()](std::int64_t row) mutable {
    const std::int64_t first_key = problem.shape.kv_head(row / Nq) * Nk;
    const std::vector<std::int64_t> seen = attended_keys(problem, row);
    const double sink = problem.mask.sink_of(problem.shape, row).value_or(-infinity);
    if (seen.empty()) {  // fully masked: O = 0, and LSE = -inf or the sink, as initialised
      result.lse.values[row] = sink;
      result.score_size.values[row] = result.score_spread.values[row] = sink == -infinity ? 0 : std::abs(sink);
      return;
    }

    // S_i = scale·Q_i·Kᵀ with the score modification, (n,)
    const bool has_sink = sink != -infinity;
    double highest = sink, lowest = has_sink ? sink : infinity, size = has_sink ? std::abs(sink) : 0;
    P.clear();
    for (const std::int64_t j : seen) {
      const std::int64_t key = (first_key + j) * d;
      P.push_back(problem.mask.changed(problem.shape, row, j, scale * dot(&Q[row * d], &K[key], d)));
      highest = std::max(highest, P.back());
      lowest = std::min(lowest, P.back());
      const double products = std::abs(scale) * dot(&Q_absolute[row * d], &K_absolute[key], d);
      size = std::max(size, problem.mask.size(problem.shape, row, j, products));
      if (problem.mask.rope) {
        double& rotation = result.rotation.values[row];
        rotation = std::max(rotation, std::abs(scale) * rounded_products(&Q[row * d], &K[key], d));
      }
    }
    result.score_size.values[row] = size;
    result.score_spread.values[row] = std::max(highest - lowest, std::abs(highest));

    // P_i = softmax(S_i), (n,)
    result.lse.values[row] = softmax(P, sink);

    // O_i = P_i·V, (d,), with P after dropout
    const auto V_of = [&](std::size_t n) { return &V[(first_key + seen[n]) * d]; };
    const auto weight = [&](std::size_t n) { return P[n] * kept(problem, row, seen[n]); };
    double* O = &result.O.values[row * d];
    for (std::size_t n = 0; n < seen.size(); ++n) add_scaled(O, weight(n), V_of(n), d);

    // The magnitudes of this row.
    double *quadratic = &result.O_quadratic.values[row * d],
           *spread_quadratic = &result.O_spread_quadratic.values[row * d];
    double P_squares = 0;
    for (std::size_t n = 0; n < seen.size(); ++n) {
      add_magnitudes(P[n], weight(n), V_of(n), O, &result.O_size.values[row * d], quadratic,
                     &result.O_spread.values[row * d], spread_quadratic, d);
      P_squares += P[n] * P[n];
    }
    for (std::int64_t c = 0; c < d; ++c) {
      quadratic[c] = std::sqrt(quadratic[c]);
      spread_quadratic[c] = std::sqrt(spread_quadratic[c]);
    }
    result.P_quadratic.values[row] = std::sqrt(P_squares);
  };
  for_every_row(B * H * Nq, threads, forward_row);
  return result;
}

Gradients backward_oracle(const Problem& problem, const Tensor<double>& dO, unsigned threads) {
  Forward forward = forward_oracle(problem, threads);
  return backward_oracle(problem, dO, {std::move(forward.O), std::move(forward.lse)}, threads);
}

Gradients backward_oracle(const Problem& problem, const Tensor<double>& dO_tensor, const Saved& saved,
                          unsigned threads) {
  check_tensors(problem);
  const auto [B, H, Hkv, Nq, Nk, d] = problem.shape;
  check_sizes("dO", dO_tensor, {B, H, Nq, d});
  check_sizes("O", saved.O, {B, H, Nq, d});
  check_sizes("lse", saved.lse, {B, H, Nq, 1});
  const double scale = problem.scale;
  std::vector<double> Q = to_double(problem.Q.values), K = to_double(problem.K.values);
  rotate_rows(Q, problem, Nq), rotate_rows(K, problem, Nk);
  const std::vector<double> V = to_double(problem.V.values);
  const std::vector<double>&dO = dO_tensor.values, &O = saved.O.values, &lse = saved.lse.values;

  Gradients result{.dQ = Tensor<double>({B, H, Nq, d}),
                   .dK = Tensor<double>({B, Hkv, Nk, d}),
                   .dV = Tensor<double>({B, Hkv, Nk, d}),
                   .dsink = problem.mask.sink.empty() ? Tensor<double>() : Tensor<double>(sink_sizes(problem))};
  std::vector<double> D(B * H * Nq);
  for (std::int64_t i = 0; i < B * H * Nq; ++i) D[i] = dot(&dO[i * d], &O[i * d], d);

  /// P_ij after dropout, and dS_ij = P_ij (dP_ij − D_i) times the derivative of the score modification, with dP = dO·Vᵀ
  /// where P_ij is not dropped. Rows i of Q and j of K are numbered over all heads.
  struct Pair {
    double P, dS;
  };
  const auto pair = [&, Nk = Nk, d = d](std::int64_t i, std::int64_t j) -> Pair {
    const double S = scale * dot(&Q[i * d], &K[j * d], d);
    const double P = std::exp(problem.mask.changed(problem.shape, i, j % Nk, S) - lse[i]);
    const double keep = kept(problem, i, j % Nk);
    return {keep * P, P * (keep * dot(&dO[i * d], &V[j * d], d) - D[i]) * problem.mask.derivative(S)};
  };

  // dQ_i = scale·Σ_j dS_ij K_j. `row` is numbered through (B, H, Nq).
  const auto query_row = [&, Nq = Nq, Nk = Nk, d = d](std::int64_t row) {
    const std::int64_t first_key = problem.shape.kv_head(row / Nq) * Nk;
    problem.mask.for_keys(problem.shape, row, [&, d = d](std::int64_t j) {
      add_scaled(&result.dQ.values[row * d], scale * pair(row, first_key + j).dS, &K[(first_key + j) * d], d);
    });
  };
  for_every_row(B * H * Nq, threads, query_row);

  // dK_j = scale·Σ_i dS_ij Q_i and dV_j = Σ_i P_ij dO_i, over the queries of all heads that share the key. Parallel
  // over keys, so that each row has one writer. `row` is numbered through (B, Hkv, Nk).
  const auto key_row = [&, H = H, Hkv = Hkv, Nq = Nq, Nk = Nk, d = d](std::int64_t row) {
    const std::int64_t queries = H / Hkv * Nq, first = row / Nk * queries;
    for (std::int64_t i = first; i < first + queries; ++i) {
      if (!problem.mask.attends(problem.shape, i, row % Nk)) continue;
      const Pair at = pair(i, row);
      add_scaled(&result.dK.values[row * d], scale * at.dS, &Q[i * d], d);
      add_scaled(&result.dV.values[row * d], at.P, &dO[i * d], d);
    }
  };
  for_every_row(B * Hkv * Nk, threads, key_row);
  rotate_rows(result.dQ.values, problem, Nq, /*back=*/true), rotate_rows(result.dK.values, problem, Nk, /*back=*/true);

  for (std::int64_t i = 0; i < B * H * Nq && !problem.mask.sink.empty(); ++i)
    result.dsink.values[i / Nq % H] -= std::exp(*problem.mask.sink_of(problem.shape, i) - lse[i]) * D[i];
  return result;
}

}  // namespace workbook
