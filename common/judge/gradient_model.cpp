#include "common/judge/gradient_model.hpp"

#include <algorithm>
#include <cmath>

#include "common/attention/positions.hpp"

namespace workbook::judge {

GradientModel::GradientModel(const std::string& gradient, const worker::BackwardProblem& given, Index owned_,
                             Index passing_, const Precision& precision)
    : inputs(std::make_shared<const worker::BackwardProblem>(given)),
      of_queries(gradient == "dQ"),
      of_values(gradient == "dV"),
      owned(owned_),
      passing(passing_),
      rounded(precision.element == bfloat16 ? to_bf16 : to_fp16),
      rounds_P(precision.probability > 0),
      rounds_gradients(precision.output > 1e-6),
      words{{"{gradient}", gradient},
            {"{element}", precision.element == bfloat16 ? "bf16" : "fp16"},
            {"{P}", of_values ? "P" : "dS"}},
      score_scale(given.problem.scale),
      left_is_P(of_values),
      factor(of_values ? 1 : double(given.problem.scale)) {
  heads = [shape = given.problem.shape, of_queries = of_queries](Index head) {
    const Index kv_head = shape.kv_head(head);
    return Heads{kv_head, head, head, of_queries ? head : kv_head};
  };
  D = [in = inputs](Index head, Index i) {
    const Shape& shape = in->problem.shape;
    double sum = 0;
    for (Index at = (head * shape.Nq + i) * shape.d; at < (head * shape.Nq + i + 1) * shape.d; ++at)
      sum += in->saved.O.values[std::size_t(at)] * in->dO.values[std::size_t(at)];
    return sum;
  };
  lse = [in = inputs](Index head, Index i) {
    return double(in->saved.lse.values[std::size_t(head * in->problem.shape.Nq + i)]);
  };
  sees = [in = inputs](Index i, Index j) { return in->problem.mask.sees(in->problem.shape, i, j); };
  if (given.problem.mask.alibi || given.problem.mask.softcap > 0) {
    changed = [in = inputs](Index head, Index i, Index j, double score) {
      return in->problem.mask.changed(in->problem.shape, head * in->problem.shape.Nq + i, j, score);
    };
    derivative = [in = inputs](double score) { return in->problem.mask.derivative(score); };
  }
  if (given.problem.mask.rope) {
    rotated = [in = inputs, round = rounded](std::vector<float>& rows, bool of_queries) {
      rotate_rows(rows, in->problem, of_queries ? in->problem.shape.Nq : in->problem.shape.Nk);
      for (float& x : rows) x = round(x);
    };
    if (!of_values)
      rotated_back = [in = inputs](Tensor<double>& sums) {
        rotate_rows(sums.values, in->problem, sums.sizes[2], /*back=*/true);
      };
  }
  if (given.problem.mask.dropped > 0)
    kept = kept_P = [in = inputs](Index head, Index i, Index j) {
      return workbook::kept(in->problem, head * in->problem.shape.Nq + i, j);
    };
  P = [](double score, double lse, double) { return float(std::exp(score - lse)); };
  dS = [](float P, double dP, double D) { return float(P * (dP - D)); };
  query_of = [](Index i, Index) { return i; };
  right_row = [](Index other) { return other; };
  counts = [](Index, Index) { return true; };
}

float GradientModel::probability(Index head, Index i, double score, double maximum) const {
  const double of_row = lse(head, i);
  return of_row == -infinity && tiled() ? 0 : P(score, of_row, maximum);
}

Tensor<double> GradientModel::compute() const {
  const Shape& shape = inputs->problem.shape;
  Tensor<double> result(of_queries ? std::array{shape.B, shape.H, shape.Nq, shape.d}
                                   : std::array{shape.B, shape.Hkv, shape.Nk, shape.d});
  for (Index head = 0; head < shape.B * shape.H && factor != 0; ++head) add_head(head, result);
  if (rotated_back) rotated_back(result);
  if (moved) moved(result);
  for (double& value : result.values) value = rounds_gradients ? rounded(float(value)) : value;
  return result;
}

namespace {

/// A head of a tensor, (rows, columns), with each element read from the position that `places` returns.
template <class T>
std::vector<T> head_of(const Tensor<T>& tensor, Index head, const GradientModel::Places& places) {
  const Index rows = tensor.sizes[2], columns = tensor.sizes[3];
  const auto first = tensor.values.begin() + head * rows * columns;
  std::vector<T> own(first, first + rows * columns);
  if (!places) return own;
  std::vector<T> taken(own.size(), 0);
  for (Index row = 0; row < rows; ++row) {
    for (Index column = 0; column < columns; ++column) {
      const auto [r, c] = places(row, column);
      if (r >= 0 && r < rows && c >= 0 && c < columns)
        taken[std::size_t(row * columns + column)] = own[std::size_t(r * columns + c)];
    }
  }
  return taken;
}

template <class T>
double product(const T* a, const float* b, Index d) {
  double sum = 0;
  for (Index c = 0; c < d; ++c) sum += double(a[c]) * b[c];
  return sum;
}

}  // namespace

GradientModel::Weights GradientModel::weights_of(const Heads& taken) const {
  const Problem& problem = inputs->problem;
  const auto stored = [&](float x) { return rounds_P ? rounded(x) : x; };
  const auto visible = [&](Index i, Index j) { return taken.sees ? taken.sees(i, j) : sees(i, j); };
  std::vector<float> Q = head_of(problem.Q, taken.of_queries, of_queries_in_scores),
                     K = head_of(problem.K, taken.of_keys, of_keys_in_scores);
  if (rotated) rotated(Q, true), rotated(K, false);
  std::vector<float> V =
      head_of(dP_of_K ? problem.K : problem.V, taken.of_keys, of_keys_in_dP ? of_keys_in_dP : of_keys_in_scores);
  const std::vector<double> dO =
      head_of(inputs->dO, taken.of_queries, of_queries_in_dP ? of_queries_in_dP : of_queries_in_scores);
  for (std::size_t at = 0; at < K.size() && times_in_scores; ++at) {
    const float times = times_in_scores(Index(at) % d());
    K[at] *= times, V[at] *= times;
  }
  Weights all{std::vector<float>(std::size_t(Nq() * Nk()), unseen), {}};
  all.dS = all.P;
  std::vector<float> slopes(static_cast<std::size_t>(Nk()));
  std::vector<double> scores(static_cast<std::size_t>(Nk())), D_of(static_cast<std::size_t>(Nq()));
  for (Index i = 0; i < Nq(); ++i) D_of[std::size_t(i)] = D(taken.of_rows, i);
  for (Index i = 0; i < Nq(); ++i) {
    double maximum = -infinity;
    for (Index j = 0; j < Nk(); ++j) {
      const double score = score_scale * product(&Q[std::size_t(i * d())], &K[std::size_t(j * d())], d());
      scores[std::size_t(j)] = changed ? changed(taken.of_queries, i, j, score) : score;
      slopes[std::size_t(j)] = derivative ? float(derivative(score)) : 1;
      if (visible(i, j)) maximum = std::max(maximum, scores[std::size_t(j)]);
    }
    for (Index j = 0; j < Nk(); ++j) {
      const Index query = query_of(i, j), of_D = query_of_D ? query_of_D(i, j) : query;
      if ((!visible(i, j) && masks_P) || query >= Nq()) continue;  // queries that do not exist have P = 0
      const double dP =
          product(&dO[std::size_t(i * d())], &V[std::size_t(j * d())], d()) * (kept ? kept(taken.of_queries, i, j) : 1);
      const float P_ij = probability(taken.of_rows, query, scores[std::size_t(j)], maximum);
      const auto at = std::size_t(i * Nk() + j);
      all.P[at] = stored(P_ij) * (kept_P ? float(kept_P(taken.of_queries, i, j)) : 1);
      const float factor_of_dS =
          dS_of_product ? float(product(&Q[std::size_t(i * d())], &K[std::size_t(j * d())], d())) : P_ij;
      const float dS_ij = dS(factor_of_dS, dP, of_D < Nq() ? D_of[std::size_t(of_D)] : 0) * slopes[std::size_t(j)];
      const bool is_dropped = kept_dS && kept && kept(taken.of_queries, i, j) == 0;
      all.dS[at] = visible(i, j) && !is_dropped ? stored(dS_ij) : 0;
    }
  }
  return all;
}

void GradientModel::add_head(Index head, Tensor<double>& result) const {
  const Problem& problem = inputs->problem;
  const Heads taken = heads(head);
  if (taken.to < 0) return;
  const Weights weights = weights_of(taken);
  const std::vector<float>& own = left_is_P ? weights.P : weights.dS;
  // dQ = scale·dS·K, dK = scale·dSᵀ·Q, dV = Pᵀ·dO; the left operand for the first and for the second half of the
  // columns.
  const auto left_of = [&](int half) {
    if (!in_left) return own;
    std::vector<float> moved(own.size(), 0);
    for (Index i = 0; i < Nq(); ++i) {
      for (Index j = 0; j < Nk(); ++j) {
        const auto [row, column] = in_left(i, j, half);
        if (row >= 0 && row < Nq() && column >= 0 && column < Nk())
          moved[std::size_t(i * Nk() + j)] = own[std::size_t(row * Nk() + column)];
      }
    }
    return moved;
  };
  const std::vector<float> left[2] = {left_of(0), left_of(1)};
  std::vector<double> right;
  if (!of_queries && of_values != other_right) {
    right = head_of(inputs->dO, taken.of_queries, in_right);
  } else {
    const Tensor<float>& of_keys = other_right ? problem.V : problem.K;
    std::vector<float> rows =
        of_queries ? head_of(of_keys, taken.of_keys, in_right) : head_of(problem.Q, taken.of_queries, in_right);
    if (rotated && !other_right) rotated(rows, !of_queries);
    right.assign(rows.begin(), rows.end());
  }
  const Index rows = of_queries ? Nq() : Nk(), others = of_queries ? Nk() : Nq();
  for (Index row = 0; row < rows; ++row) {
    std::vector<double> sum(std::size_t(d()), added ? added(head, row) : 0);
    for (Index other = 0; other < others; ++other) {
      const Index at = right_row(other);
      if (!counts(row, other) || at >= others) continue;
      const bool row_is_query = of_queries != left_is_transposed;
      const auto pair = std::size_t(row_is_query ? row * Nk() + other : other * Nk() + row);
      for (Index c = 0; c < d(); ++c)
        sum[std::size_t(c)] += double(left[2 * c >= d()][pair]) * right[std::size_t(at * d() + c)];
    }
    if (sums_to) sums_to(row, sum);
    for (Index c = 0; c < d(); ++c)
      result.values[std::size_t((taken.to * rows + row) * d() + c)] += factor * sum[std::size_t(c)];
  }
}

double GradientModel::cost() const {
  const Shape& shape = inputs->problem.shape;
  return 3.0 * double(shape.B * shape.H * shape.Nq) * double(shape.Nk) * double(shape.d);
}

}  // namespace workbook::judge
