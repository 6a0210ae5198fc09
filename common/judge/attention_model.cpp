#include "common/judge/attention_model.hpp"

#include <algorithm>
#include <cmath>

#include "common/attention/half.hpp"
#include "common/attention/positions.hpp"

namespace workbook::judge {
namespace {

Problem without_inputs(const Tensor<float>& S) {
  Problem problem;
  problem.shape = {1, 1, 1, S.sizes[2], S.sizes[3], 0};
  problem.scale = 1;
  return problem;
}

std::vector<float> read_rows(const Tensor<float>& tensor, const Place& place, Index b, Index h) {
  const Index rows = tensor.sizes[2], columns = tensor.sizes[3];
  std::vector<float> result;
  result.reserve(std::size_t(rows * columns));
  for (Index row = 0; row < rows; ++row)
    for (Index c = 0; c < columns; ++c) {
      const Index at = place(tensor, b, h, row, c);
      result.push_back(at < 0 ? 0 : tensor.values[std::size_t(at)]);
    }
  return result;
}

/// Σ_c a_c b_c in eight running sums, which the compiler can vectorise.
float dot(const float* a, const float* b, Index d) {
  float sums[8] = {};
  Index c = 0;
  for (; c + 8 <= d; c += 8)
    for (int k = 0; k < 8; ++k) sums[k] += a[c + k] * b[c + k];
  for (; c < d; ++c) sums[c % 8] += a[c] * b[c];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

}  // namespace

float unrounded(float x) {
  return x;
}
float to_fp16(float x) {
  return half_to_float(float_to_half(x));
}
float to_bf16(float x) {
  return bfloat16_to_float(float_to_bfloat16(x));
}
float to_e4m3_with_offset(float x) {
  return rounded_to_e4m3(x * 256) / 256;
}
Rounding rounding_of(double roundoff) {
  return roundoff < 1e-6 ? unrounded : roundoff < 1e-3 ? to_fp16 : roundoff < 1e-2 ? to_bf16 : to_e4m3_with_offset;
}

Index round_down(Index value, Index step) {
  return value / step * step;
}
Index round_up(Index value, Index step) {
  return (value + step - 1) / step * step;
}

AttentionModel::AttentionModel(std::shared_ptr<const Problem> problem_, const Tiling& tiling_,
                               const Precision& precision)
    : problem(std::move(problem_)),
      tiling(tiling_),
      step(tiling.lane_rows.step > 0 ? tiling.lane_rows.step : tiling.Bc),
      round_P(rounding_of(precision.probability)),
      round_O(rounding_of(precision.output)),
      keys{0, problem->shape.Nk},
      scale(problem->scale),
      // Kernels flush subnormal numbers to 0.
      exponential(rounds_P() ? +[](float x) { return x < -87.33654F ? 0 : std::exp(x); }
                             : +[](float x) { return std::exp(x); }),
      heads_written(problem->shape.B * problem->shape.H) {
  Q = K = V = written = [](const Tensor<float>& tensor, Index b, Index h, Index row, Index c) {
    return Index(tensor.index(b, h, row, c));
  };
  kv_head = [shape = problem->shape](Index h) { return h / (shape.H / shape.Hkv); };
  sees = [given = problem](Index query) {
    Range seen{0, 0};
    given->mask.for_ranges(given->shape, query, [&](const KeyRange& keys) {
      seen = {seen.to == 0 ? keys.first : seen.from, keys.last};
    });
    return seen;
  };
  if (problem->mask.kind == Mask::strided)
    counts = [given = problem](Index query, Index key) { return given->mask.sees(given->shape, query, key); };
  changed = [given = problem](const Head& head, Index query, Index key, float score) {
    const Mask& mask = given->mask;
    const Index row = (head.b * given->shape.H + head.h) * given->shape.Nq + query;
    return mask.alibi || mask.softcap > 0 ? float(mask.changed(given->shape, row, key, score)) : score;
  };
  if (problem->mask.rope)
    rotated = [given = problem, round = rounding_of(precision.input)](std::vector<float>& rows, bool of_queries) {
      rotate_rows(rows, *given, of_queries ? given->shape.Nq : given->shape.Nk);
      for (float& x : rows) x = round(x);
    };
  if (problem->mask.dropped > 0)
    kept = [given = problem](const Head& head, Index query, Index key) {
      return float(workbook::kept(*given, (head.b * given->shape.H + head.h) * given->shape.Nq + query, key));
    };
  if (!problem->mask.sink.empty())
    sink = [given = problem](const Head& head) { return given->mask.sink[std::size_t(head.h)]; };
  lse = [](float m, float l) { return m + std::log(l); };
  // Stages whose lanes own rows skip tiles that are masked for all of their queries. For other stages this is unknown.
  if (lanes_own_rows() && problem->mask != Mask::none)
    goes_to = [seen = sees, shape = problem->shape, Br = tiling.Br](Index query) {
      return seen(std::min(shape.Nq, round_down(query, Br) + Br) - 1).to;
    };
}

AttentionModel::AttentionModel(const Problem& problem, const Tiling& tiling, const Precision& precision)
    : AttentionModel(std::make_shared<const Problem>(problem), tiling, precision) {}

AttentionModel::AttentionModel(const Tensor<float>& S, Index Bc)
    : AttentionModel(std::make_shared<const Problem>(without_inputs(S)), {.Bc = Bc}, float32_precision()) {
  given_S = std::make_shared<const Tensor<float>>(S);
}

Index AttentionModel::last_of_tile(Index query) const {
  const Index Br = std::max<Index>(tiling.Br, 1);
  return std::min(Nq(), round_down(query, Br) + Br) - 1;
}

Head AttentionModel::read(Index b, Index h) const {
  const Index of_KV = kv_head(h);
  Head head{b, h, read_rows(problem->Q, Q, b, h), read_rows(problem->K, K, b, of_KV),
            read_rows(problem->V, V, b, of_KV)};
  if (rotated) rotated(head.Q, true), rotated(head.K, false);
  return head;
}

float AttentionModel::score(const Head& head, Index query, Index key) const {
  if (query >= Nq() || key >= Nk()) return 0;
  if (given_S) return (*given_S)(0, 0, query, key);
  const Index first = features.from, last = std::min(d(), features.to);
  const float score =
      scale * dot(&head.Q[std::size_t(query * d() + first)], &head.K[std::size_t(key * d() + first)], last - first);
  return changed(head, query, key, score);
}

void AttentionModel::raise(Row& row, float largest) const {
  row.m_tile = largest;
  row.m = row.subtracted = largest > row.m_old + tiling.lane_rows.slack ? largest : row.m_old;
}

Row AttentionModel::attend(const Head& head, Index query, const std::function<void(const Row&)>& look) const {
  const Range seen = sees(query);
  const Index end = goes_to ? std::clamp(round_up(goes_to(query), tiling.Bc), keys.from, keys.to) : keys.to;
  const Index tile = tiled() ? step : std::max<Index>(end, 1);
  Row row{.head = &head, .query = query, .m = first_m};
  row.O.assign(head.V.empty() ? 0 : std::size_t(d()), 0);
  const Index steps = std::max<Index>(0, round_up(end - keys.from, tile) / tile);
  for (; row.number < steps; ++row.number) {
    row.last = row.number + 1 == steps;
    row.first = keys.from + tile * (tiling.lane_rows.last_first ? steps - 1 - row.number : row.number);
    // S = scale·QKᵀ, masked
    row.keys = std::min(tile, end - row.first);
    row.S.assign(std::size_t(padding_score > -infinity ? tile : row.keys), padding_score);
    for (Index j = row.first; j < row.first + row.keys; ++j)
      row.S[std::size_t(j - row.first)] =
          seen.contains(j) && (!counts || counts(query, j)) ? score(head, query, j) : -infinity;
    after_scores.reach(row);

    // m, and P = exp(S - m)
    row.m_old = row.m;
    float largest = -infinity;
    for (const float x : row.S) largest = std::max(largest, x);
    raise(row, largest);
    after_maximum.reach(row);
    row.P = row.S;
    for (float& x : row.P) x = exponential(x - safe(row.subtracted));
    after_probabilities.reach(row);

    // l
    row.l_factor = row.O_factor = exponential(row.m_old - safe(row.m));
    after_factors.reach(row);
    row.sum = 0;
    for (const float x : row.P) row.sum += x;
    after_sum.reach(row);
    row.l = row.l * row.l_factor + row.sum;

    // O
    row.weights.assign(row.P.begin(), row.P.begin() + std::ptrdiff_t(row.keys));
    for (float& x : row.weights) x = round_P(!tiled() && divisions == 1 ? divided(x, row.l) : x);
    for (Index j = 0; j < row.keys && kept; ++j) row.weights[std::size_t(j)] *= kept(head, query, row.first + j);
    after_weights.reach(row);
    for (float& x : row.O) x *= row.O_factor;
    for (Index j = 0; j < row.keys && !row.O.empty(); ++j) {
      const float weight = row.weights[std::size_t(j)];
      const float* __restrict V_j = &head.V[std::size_t((row.first + j) * d())];
      float* __restrict O = row.O.data();
      for (Index c = 0; c < d(); ++c) O[c] += weight * V_j[c];
    }
    after_step.reach(row);
    if (look) look(row);
  }
  if (sink) {
    row.m_old = row.m, row.m = std::max(row.m, sink(head));
    row.O_factor = exponential(row.m_old - row.m);
    row.l = row.l * row.O_factor + exponential(sink(head) - row.m);
    for (float& x : row.O) x *= row.O_factor;
  }
  for (int done = !tiled() && divisions == 1; done < divisions; ++done)
    for (float& x : row.O) x = divided(x, row.l);
  after_last.reach(row);
  return row;
}

std::pair<Tensor<double>, Tensor<double>> AttentionModel::attend_all() const {
  const auto& [B, H, Hkv, Nq, Nk, d] = problem->shape;
  std::pair<Tensor<double>, Tensor<double>> result;
  auto& [O, LSE] = result;
  LSE = Tensor<double>({B, H, Nq, 1}, unwritten);
  if (d > 0) O = Tensor<double>({B, H, Nq, d}, unwritten);
  for (Index number = 0; number < heads_written; ++number) {
    const Index b = number / H, h = number % H;
    const Head head = read(b, h);
    for (Index i = 0; i < std::min(Nq, rows.to); ++i) {
      const Row row = attend(head, i);
      LSE(b, h, i, 0) = lse(row.m, row.l);
      for (Index c = 0; c < Index(row.O.size()); ++c)
        O.values[std::size_t(written(problem->Q, b, h, i, c))] = round_O(row.O[std::size_t(c)]);
    }
  }
  return result;
}

Tensor<double> AttentionModel::scores_or_weights(std::vector<float> Row::*member) const {
  const auto& [B, H, Hkv, Nq, Nk, d] = problem->shape;
  Tensor<double> result({B, H, Nq, Nk}, unwritten);
  const Tensor<float> sizes({B, H, Nq, Nk});
  for (Index number = 0; number < heads_written; ++number) {
    const Index b = number / H, h = number % H;
    const Head head = read(b, h);
    for (Index i = 0; i < std::min(Nq, rows.to); ++i)
      attend(head, i, [&](const Row& row) {
        for (Index j = 0; j < row.keys; ++j)
          result.values[std::size_t(written(sizes, b, h, i, row.first + j))] = (row.*member)[std::size_t(j)];
      });
  }
  return result;
}
Tensor<double> AttentionModel::S() const {
  return scores_or_weights(&Row::S);
}
Tensor<double> AttentionModel::P() const {
  return scores_or_weights(&Row::weights);
}

double AttentionModel::cost() const {
  const Shape& shape = problem->shape;
  return 2.0 * double(shape.B * shape.H) * double(shape.Nq) * double(shape.Nk) * double(std::max<Index>(shape.d, 10));
}

}  // namespace workbook::judge
