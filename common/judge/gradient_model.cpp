#include "common/judge/gradient_model.hpp"

#include <algorithm>
#include <cmath>

namespace workbook::judge {

GradientModel::GradientModel(const std::string& gradient, const worker::BackwardProblem& given, Index owned_,
                             Index passing_, const Precision& precision)
    : inputs(std::make_shared<const worker::BackwardProblem>(given)),
      of_queries(gradient == "dQ"),
      of_values(gradient == "dV"),
      owned(owned_),
      passing(passing_),
      rounded(precision.name == "bfloat16" ? to_bf16 : to_fp16),
      rounds_P(precision.probability > 0),
      rounds_gradients(precision.output > 1e-6),
      words{{"{gradient}", gradient},
            {"{element}", precision.name == "bfloat16" ? "bf16" : "fp16"},
            {"{P}", of_values ? "P" : "dS"}},
      score_scale(given.problem.scale),
      left_is_P(of_values),
      factor(of_values ? 1 : double(given.problem.scale)) {
  D = [in = inputs](Index head, Index i) {
    const Shape& shape = in->problem.shape;
    double sum = 0;
    for (Index at = (head * shape.Nq + i) * shape.d; at < (head * shape.Nq + i + 1) * shape.d; ++at)
      sum += in->saved.O.values[std::size_t(at)] * in->dO.values[std::size_t(at)];
    return sum;
  };
  sees = [in = inputs](Index i, Index j) {
    return j < visible_keys(i, in->problem.shape.Nq, in->problem.shape.Nk, in->problem.causal);
  };
  P = [](double score, double lse, double) { return float(std::exp(score - lse)); };
  dS = [](float P, double dP, double D) { return float(P * (dP - D)); };
  query_of = [](Index i, Index) { return i; };
  right_row = [](Index other) { return other; };
  counts = [](Index, Index) { return true; };
}

float GradientModel::probability(Index head, Index i, double score, double maximum) const {
  const double lse = inputs->saved.lse.values[std::size_t(head * Nq() + i)];
  return lse == -infinity && tiled() ? 0 : P(score, lse, maximum);
}

Tensor<double> GradientModel::compute() const {
  const Shape& shape = inputs->problem.shape;
  Tensor<double> result({shape.B, shape.H, of_queries ? shape.Nq : shape.Nk, shape.d});
  for (Index head = 0; head < shape.B * shape.H && factor != 0; ++head) compute_head(head, result);
  return result;
}

void GradientModel::compute_head(Index head, Tensor<double>& result) const {
  const auto row_of = [&](const auto& tensor, Index row) {
    return &tensor.values[std::size_t((head * tensor.sizes[2] + row) * d())];
  };
  const auto product = [&](const auto* a, const float* b) {
    double sum = 0;
    for (Index c = 0; c < d(); ++c) sum += double(a[c]) * b[c];
    return sum;
  };
  const Problem& problem = inputs->problem;
  const auto stored = [&](float x) { return rounds_P ? rounded(x) : x; };

  // P and dS, (Nq, Nk)
  std::vector<float> P_(std::size_t(Nq() * Nk()), 0), dS_ = P_;
  std::vector<double> scores(static_cast<std::size_t>(Nk())), D_of(static_cast<std::size_t>(Nq()));
  for (Index i = 0; i < Nq(); ++i) D_of[std::size_t(i)] = D(head, i);
  for (Index i = 0; i < Nq(); ++i) {
    double maximum = -infinity;
    for (Index j = 0; j < Nk(); ++j) {
      scores[std::size_t(j)] = score_scale * product(row_of(problem.Q, i), row_of(problem.K, j));
      if (sees(i, j)) maximum = std::max(maximum, scores[std::size_t(j)]);
    }
    for (Index j = 0; j < Nk(); ++j) {
      const Index query = query_of(i, j);
      if ((!sees(i, j) && masks_P) || query >= Nq()) continue;  // queries that do not exist have P = 0
      const double dP = product(row_of(inputs->dO, i), row_of(dP_of_K ? problem.K : problem.V, j));
      const float P_ij = probability(head, query, scores[std::size_t(j)], maximum);
      const auto at = std::size_t(i * Nk() + j);
      P_[at] = stored(P_ij);
      dS_[at] = sees(i, j) ? stored(dS(P_ij, dP, D_of[std::size_t(query)])) : 0;
    }
  }

  // dQ = scale·dS·K, dK = scale·dSᵀ·Q, dV = Pᵀ·dO
  const std::vector<float>& left = left_is_P ? P_ : dS_;
  const Index rows = of_queries ? Nq() : Nk(), others = of_queries ? Nk() : Nq();
  for (Index row = 0; row < rows; ++row) {
    std::vector<double> sum(std::size_t(d()), added ? added(head, row) : 0);
    for (Index other = 0; other < others; ++other) {
      const Index right = right_row(other);
      if (!counts(row, other) || right >= others) continue;
      const bool row_is_query = of_queries != left_is_transposed;
      const double weight = left[std::size_t(row_is_query ? row * Nk() + other : other * Nk() + row)];
      const auto add = [&](const auto* values) {
        for (Index c = 0; c < d(); ++c) sum[std::size_t(c)] += weight * values[c];
      };
      if (of_values) {
        add(row_of(inputs->dO, right));
      } else {
        add(row_of(of_queries ? problem.K : problem.Q, right));
      }
    }
    for (Index c = 0; c < d(); ++c) {
      const double value = factor * sum[std::size_t(c)];
      result.values[std::size_t((head * rows + row) * d() + c)] = rounds_gradients ? rounded(float(value)) : value;
    }
  }
}

double GradientModel::cost() const {
  const Shape& shape = inputs->problem.shape;
  return 3.0 * double(shape.B * shape.H * shape.Nq) * double(shape.Nk) * double(shape.d);
}

}  // namespace workbook::judge
