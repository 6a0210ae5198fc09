#include "common/training/underflow.hpp"

#include <cmath>
#include <limits>

#include "common/attention/inputs.hpp"
#include "common/attention/oracle.hpp"
#include "common/training/product.hpp"
#include "common/training/storage.hpp"

namespace workbook::training {
namespace {

constexpr std::int64_t kRows = 64;  // queries at a time

/// Elements that were not 0 and become 0, and those that become infinite, counted over any number of arrays.
struct Lost {
  std::int64_t elements = 0, zero = 0, infinite = 0;

  /// Rounds to fp16 in place, and counts.
  void store(std::span<float> values) {
    std::vector<float> stored(values.begin(), values.end());
    round_to(Storage::fp16, stored);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      ++elements;
      zero += stored[i] == 0 && values[i] != 0;
      infinite += std::isinf(stored[i]);
      values[i] = stored[i];
    }
  }
  double share_zero() const { return double(zero) / double(elements); }
};

double relative_error(const std::vector<float>& got, double scale, const Tensor<double>& exact) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double off = double(got[i]) / scale - exact.values[i];
    difference += off * off;
    size += exact.values[i] * exact.values[i];
  }
  return std::sqrt(difference / size);
}

/// The backward pass with fp16's roundings. lse and D are exact: no error of theirs is counted here.
UnderflowRow row(const Problem& problem, const Tensor<double>& dO_exact, const Forward& forward, const Gradients& exact,
                 int scale_exponent) {
  const std::int64_t N = problem.shape.Nq, d = problem.shape.d;
  const double scale = std::ldexp(1.0, scale_exponent);
  const float *Q = problem.Q.values.data(), *K = problem.K.values.data(), *V = problem.V.values.data();
  Lost lost_dO, lost_dP, lost_dS;
  std::vector<float> dO(std::size_t(N * d)), dQ(dO.size()), dK(dO.size()), dV(dO.size());
  for (std::size_t i = 0; i < dO.size(); ++i) dO[i] = float(dO_exact.values[i] * scale);
  lost_dO.store(dO);

  for (std::int64_t first = 0; first < N; first += kRows) {
    const std::int64_t rows = std::min(kRows, N - first);
    std::vector<float> P(std::size_t(rows * N)), dP(P.size());
    multiply(P.data(), matrix(Q + first * d, rows, d), matrix(K, N, d).transposed());                 // QKᵀ
    multiply(dP.data(), matrix(&dO[std::size_t(first * d)], rows, d), matrix(V, N, d).transposed());  // dO·Vᵀ
    std::vector<float> dS(P.size());
    for (std::int64_t i = 0; i < rows; ++i) {
      const auto query = std::size_t(first + i);
      double D = 0;  // dO·O
      for (std::int64_t c = 0; c < d; ++c)
        D += double(dO[query * std::size_t(d) + std::size_t(c)]) *
             forward.O.values[query * std::size_t(d) + std::size_t(c)];
      for (std::int64_t j = 0; j < N; ++j) {
        const auto at = std::size_t(i * N + j);
        P[at] = std::exp(problem.scale * P[at] - float(forward.lse.values[query]));
        dS[at] = P[at] * (dP[at] - float(D));
      }
    }
    round_to(Storage::fp16, P);
    lost_dP.store(dP);  // to count: dS was made from dP in float
    lost_dS.store(dS);
    multiply(&dQ[std::size_t(first * d)], matrix(dS.data(), rows, N), matrix(K, N, d));
    multiply(dK.data(), matrix(dS.data(), rows, N).transposed(), matrix(Q + first * d, rows, d), Into::add);
    multiply(dV.data(), matrix(P.data(), rows, N).transposed(), matrix(&dO[std::size_t(first * d)], rows, d),
             Into::add);
  }
  for (float& gradient : dQ) gradient *= problem.scale;
  for (float& gradient : dK) gradient *= problem.scale;
  for (std::vector<float>* gradients : {&dQ, &dK, &dV}) round_to(Storage::fp16, *gradients);

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

}  // namespace

std::vector<UnderflowRow> underflow_table(const UnderflowOptions& options) {
  if (options.tokens < 1) fail_input("tokens = {}: allowed are whole numbers from 1 on", options.tokens);
  std::vector<UnderflowRow> table;
  for (const std::int64_t N : options.lengths) {
    Problem problem = make_input("normal", {{1, 1, 1, N, N, options.d}, false, 0, options.seed});
    for (Tensor<float>* tensor : {&problem.Q, &problem.K, &problem.V}) round_to(Storage::fp16, tensor->values);
    Tensor<double> dO({1, 1, N, options.d});
    const std::vector<float> normal = normal_values(dO.values.size(), options.seed + 1);
    for (std::size_t i = 0; i < normal.size(); ++i)
      dO.values[i] = options.gradient * double(normal[i]) / double(options.tokens);
    const Forward forward = forward_oracle(problem);
    const Gradients exact = backward_oracle(problem, dO);
    for (const int exponent : options.scale_exponents) table.push_back(row(problem, dO, forward, exact, exponent));
  }
  return table;
}

}  // namespace workbook::training
