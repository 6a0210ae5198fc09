// Underflow of attention's backward pass in fp16, by sequence length and loss scale: a float64 backward pass compared
// with the same pass with fp16's roundings, for one head without a mask. Header-only and independent of the book's
// libraries, since a worker computes it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/attention/random.hpp"
#include "common/simt/half_codes.hpp"

namespace ch07_tests {

struct UnderflowOptions {
  std::vector<std::int64_t> lengths{256, 1024, 4096};  ///< N: Nq = Nk
  std::vector<int> scale_exponents{0, 8, 16, 24};      ///< log2 of the loss scale
  std::int64_t d = 64;
  /// The loss is the mean over this number of tokens: 16 sequences of 1024.
  std::int64_t tokens = std::int64_t{1} << 14;
  /// Root mean square of the gradient of one token's own loss with respect to an element of its row of O; dO is that,
  /// normal, divided by `tokens`. 0.2 is about what the model of `./workbook train` has (notes/training.md).
  double gradient = 0.2;
  std::uint64_t seed = 1;
};

struct UnderflowRow {
  std::int64_t N = 0;
  int scale_exponent = 0;
  double zero_dO = 0, zero_dP = 0, zero_dS = 0;  ///< share of elements that become 0 in fp16
  double infinite = 0;                           ///< share of the elements of dO, dP and dS that become infinite
  /// ‖got - exact‖ / ‖exact‖ over all elements; not finite if a gradient is infinite or NaN.
  double error_dQ = 0, error_dK = 0, error_dV = 0;
};

namespace underflow {

/// to (n) += factor · from (n). The inner loop has a length that the compiler knows, so that it vectorises.
template <class T>
void add_multiple(T* __restrict to, const T* __restrict from, T factor, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int k = 0; k < 16; ++k) to[i + k] += factor * from[i + k];
  for (; i < n; ++i) to[i] += factor * from[i];
}

inline float rounded(float value) {
  return simt::half_to_float(simt::float_to_half(value));
}

/// Q, K, V and dO (N, d) of one head as T, row by row; K and V column by column too: (d, N).
template <class T>
struct Head {
  std::int64_t N, d;
  T scale;
  std::vector<T> Q, K, V, dO, K_columns, V_columns;
};

/// What a forward pass keeps, and the gradients, exactly.
struct Exact {
  std::vector<double> O, lse, dQ, dK, dV;
};

template <class T>
std::vector<T> by_columns(const std::vector<T>& rows, std::int64_t N, std::int64_t d) {
  std::vector<T> columns(rows.size());
  for (std::int64_t i = 0; i < N; ++i)
    for (std::int64_t c = 0; c < d; ++c) columns[std::size_t(c * N + i)] = rows[std::size_t(i * d + c)];
  return columns;
}

/// row (N) = A x, for x (d) and a matrix A (N, d) that is stored column by column.
template <class T>
void matrix_vector(std::vector<T>& row, const T* x, const std::vector<T>& columns, std::int64_t N, std::int64_t d) {
  std::fill(row.begin(), row.end(), T(0));
  for (std::int64_t c = 0; c < d; ++c) add_multiple(row.data(), &columns[std::size_t(c * N)], x[c], N);
}

inline double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

inline Exact exact_gradients(const Head<double>& head) {
  const auto [N, d] = std::pair(head.N, head.d);
  const std::size_t elements = std::size_t(N * d);
  Exact exact{std::vector<double>(elements), std::vector<double>(std::size_t(N)), std::vector<double>(elements),
              std::vector<double>(elements), std::vector<double>(elements)};
  std::vector<double> P(static_cast<std::size_t>(N)), dP(P.size());
  for (std::int64_t i = 0; i < N; ++i) {
    const double *Q = &head.Q[std::size_t(i * d)], *dO = &head.dO[std::size_t(i * d)];
    double *O = &exact.O[std::size_t(i * d)], *dQ = &exact.dQ[std::size_t(i * d)];
    matrix_vector(P, Q, head.K_columns, N, d);
    const double m = head.scale * *std::max_element(P.begin(), P.end());
    double l = 0;
    for (double& x : P) l += x = std::exp(head.scale * x - m);
    for (double& x : P) x /= l;
    exact.lse[std::size_t(i)] = m + std::log(l);
    for (std::int64_t j = 0; j < N; ++j) add_multiple(O, &head.V[std::size_t(j * d)], P[std::size_t(j)], d);
    const double D = dot(dO, O, d);
    matrix_vector(dP, dO, head.V_columns, N, d);
    for (std::int64_t j = 0; j < N; ++j) {
      const double p = P[std::size_t(j)], dS = head.scale * p * (dP[std::size_t(j)] - D);
      add_multiple(dQ, &head.K[std::size_t(j * d)], dS, d);
      add_multiple(&exact.dK[std::size_t(j * d)], Q, dS, d);
      add_multiple(&exact.dV[std::size_t(j * d)], dO, p, d);
    }
  }
  return exact;
}

/// Elements that were not 0 and become 0, and those that become infinite, counted over any number of arrays.
struct Lost {
  std::int64_t elements = 0, zero = 0, infinite = 0;

  /// Rounds to fp16 in place, and counts.
  void store(std::span<float> values) {
    for (float& value : values) {
      const float stored = rounded(value);
      ++elements;
      zero += stored == 0 && value != 0;
      infinite += std::isinf(stored);
      value = stored;
    }
  }
  double share_zero() const { return double(zero) / double(elements); }
};

inline double relative_error(const std::vector<float>& got, double scale, const std::vector<double>& exact) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double off = double(got[i]) / scale - exact[i];
    difference += off * off;
    size += exact[i] * exact[i];
  }
  return std::sqrt(difference / size);
}

/// The backward pass with fp16's roundings. lse and O are exact: no error of theirs is counted here.
inline UnderflowRow row(Head<float> head, const Head<double>& exact_head, const Exact& exact, int scale_exponent) {
  const auto [N, d] = std::pair(head.N, head.d);
  const double scale = std::ldexp(1.0, scale_exponent);
  Lost lost_dO, lost_dP, lost_dS;
  for (std::size_t i = 0; i < head.dO.size(); ++i) head.dO[i] = float(exact_head.dO[i] * scale);
  lost_dO.store(head.dO);
  std::vector<float> dQ(head.dO.size()), dK(dQ.size()), dV(dQ.size()), P(static_cast<std::size_t>(N)), dP(P.size()),
      dS(P.size());
  for (std::int64_t i = 0; i < N; ++i) {
    const float *Q = &head.Q[std::size_t(i * d)], *dO = &head.dO[std::size_t(i * d)];
    matrix_vector(P, Q, head.K_columns, N, d);
    matrix_vector(dP, dO, head.V_columns, N, d);
    double D = 0;  // dO·O
    for (std::int64_t c = 0; c < d; ++c) D += double(dO[c]) * exact.O[std::size_t(i * d + c)];
    for (std::size_t j = 0; j < P.size(); ++j) {
      P[j] = std::exp(head.scale * P[j] - float(exact.lse[std::size_t(i)]));
      dS[j] = P[j] * (dP[j] - float(D));
      P[j] = rounded(P[j]);
    }
    lost_dP.store(dP);  // to count: dS was made from dP in float
    lost_dS.store(dS);
    for (std::int64_t j = 0; j < N; ++j) {
      add_multiple(&dQ[std::size_t(i * d)], &head.K[std::size_t(j * d)], dS[std::size_t(j)], d);
      add_multiple(&dK[std::size_t(j * d)], Q, dS[std::size_t(j)], d);
      add_multiple(&dV[std::size_t(j * d)], dO, P[std::size_t(j)], d);
    }
  }
  for (std::size_t i = 0; i < dQ.size(); ++i) {
    dQ[i] = rounded(dQ[i] * head.scale);
    dK[i] = rounded(dK[i] * head.scale);
    dV[i] = rounded(dV[i]);
  }
  const double elements = double(lost_dO.elements + lost_dP.elements + lost_dS.elements);
  return {N,
          scale_exponent,
          lost_dO.share_zero(),
          lost_dP.share_zero(),
          lost_dS.share_zero(),
          double(lost_dO.infinite + lost_dP.infinite + lost_dS.infinite) / elements,
          relative_error(dQ, scale, exact.dQ),
          relative_error(dK, scale, exact.dK),
          relative_error(dV, scale, exact.dV)};
}

/// Normal numbers of mean 0 and variance 1.
inline std::vector<double> normal(std::int64_t count, workbook::Random random) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = random.normal();
  return values;
}

}  // namespace underflow

/// One row for every length and scale. Q, K, V: unit normal, rounded to fp16. The pass rounds where a kernel of fp16
/// does: dO·scale on its way in, P, dS, and the gradients on their way out; S, dP, D and all sums stay float. The share
/// of dP is what a pass that stores it would lose. Takes about 5·N²·d multiply-adds for each row, and O(N·d) memory.
inline std::vector<UnderflowRow> underflow_table(const UnderflowOptions& options = {}) {
  using namespace underflow;
  std::vector<UnderflowRow> table;
  for (const std::int64_t N : options.lengths) {
    const std::int64_t count = N * options.d;
    const auto stream = [&](std::uint64_t number) {  // as the book's input "normal" draws Q, K and V
      return workbook::Random(workbook::Random(options.seed ^ number << 56).bits());
    };
    Head<double> exact_head{N,
                            options.d,
                            1 / std::sqrt(double(options.d)),
                            normal(count, stream(1)),
                            normal(count, stream(2)),
                            normal(count, stream(3)),
                            normal(count, workbook::Random(options.seed + 1)),
                            {},
                            {}};
    for (std::vector<double>* tensor : {&exact_head.Q, &exact_head.K, &exact_head.V})
      for (double& value : *tensor) value = double(rounded(float(value)));
    for (double& value : exact_head.dO) value = options.gradient * double(float(value)) / double(options.tokens);
    exact_head.K_columns = by_columns(exact_head.K, N, options.d);
    exact_head.V_columns = by_columns(exact_head.V, N, options.d);
    const auto floats = [](const std::vector<double>& values) {
      return std::vector<float>(values.begin(), values.end());
    };
    const Head<float> head{N,
                           options.d,
                           float(exact_head.scale),
                           floats(exact_head.Q),
                           floats(exact_head.K),
                           floats(exact_head.V),
                           floats(exact_head.dO),
                           floats(exact_head.K_columns),
                           floats(exact_head.V_columns)};
    const Exact exact = exact_gradients(exact_head);
    for (const int exponent : options.scale_exponents) table.push_back(row(head, exact_head, exact, exponent));
  }
  return table;
}

}  // namespace ch07_tests
