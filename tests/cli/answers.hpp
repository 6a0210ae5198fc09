// Answers to the exercises of chapters 1 and 2, as a reader might write them.
#pragma once

#include <map>
#include <string>

namespace workbook::test {

/// Right answers that differ from the book's.
inline const std::map<std::string, std::string> other_answers{
    {"1.1", R"(  // Keys outermost, the scale on the query, the mask afterwards.
  const auto Nq = Q.rows(), Nk = K.rows();
  for (std::int64_t j = 0; j < Nk; ++j) {
    for (std::int64_t i = 0; i < Nq; ++i) {
      const auto q = Q.row(i), k = K.row(j);
      S(i, j) = 0;
      for (std::size_t c = 0; c < q.size(); ++c) S(i, j) += scale * q[c] * k[c];
    }
  }
  if (!causal) return;
  for (std::int64_t i = 0; i < Nq; ++i) {
    for (std::int64_t j = std::max<std::int64_t>(0, i + Nk - Nq + 1); j < Nk; ++j) S(i, j) = -INFINITY;
  }
)"},
    {"1.2", R"(  for (std::int64_t i = 0; i < S.rows(); ++i) {
    const auto s = S.row(i);
    const auto p = P.row(i);
    const float m = *std::max_element(s.begin(), s.end());
    if (std::isinf(m)) {
      std::fill(p.begin(), p.end(), 0.0f);
      lse[i] = m;
      continue;
    }
    double l = 0;
    for (float x : s) l += std::exp(double(x) - m);
    for (std::size_t j = 0; j < s.size(); ++j) p[j] = float(std::exp(double(s[j]) - m) / l);
    lse[i] = float(m + std::log(l));
  }
)"},
    {"1.3", R"(  for (std::int64_t i = 0; i < P.rows(); ++i)
    for (std::int64_t c = 0; c < V.columns(); ++c) {
      float sum = 0;
      for (std::int64_t j = V.rows() - 1; j >= 0; --j) sum += V(j, c) * P(i, j);
      O(i, c) = sum;
    }
)"},
    {"2.1", R"(  // One score at a time, independent of the block size.
  SoftmaxState state;
  for (const float s : x) {
    if (s > state.m) {
      state.l = 1 + state.l * std::exp(state.m - s);
      state.m = s;
    } else if (s != minus_infinity) {
      state.l += std::exp(s - state.m);
    }
  }
  return state;
)"},
    {"2.2", R"(  if (from.m == minus_infinity) return;
  if (into.m == minus_infinity) {
    into = from;
    return;
  }
  PartialState low = into.m < from.m ? into : from;
  const PartialState high = into.m < from.m ? from : into;
  const float factor = std::exp(low.m - high.m);
  into = high;
  into.l += factor * low.l;
  for (std::size_t c = 0; c < into.O.size(); ++c) into.O[c] += factor * low.O[c];
)"},
    {"2.3", R"(  // One state per row and tile, merged into the row's state.
  const std::int64_t d = Q_tile.columns(), Nk = K.rows();
  for (std::int64_t i = 0; i < Q_tile.rows(); ++i) {
    const std::int64_t visible = workbook::visible_keys(first_query + i, Nq, Nk, causal);
    PartialState row{minus_infinity, 0, std::vector<float>(d)};
    for (std::int64_t first = 0; first < visible; first += Bc) {
      const std::int64_t last = std::min(first + Bc, visible);
      std::vector<float> s;
      for (std::int64_t j = first; j < last; ++j) {
        float dot = 0;
        for (std::int64_t c = 0; c < d; ++c) dot += Q_tile(i, c) * K(j, c);
        s.push_back(dot * scale);
      }
      PartialState tile{*std::max_element(s.begin(), s.end()), 0, std::vector<float>(d)};
      for (std::int64_t j = first; j < last; ++j) {
        const float p = std::exp(s[j - first] - tile.m);
        tile.l += p;
        for (std::int64_t c = 0; c < d; ++c) tile.O[c] += p * V(j, c);
      }
      merge(row, tile);
    }
    for (std::int64_t c = 0; c < d; ++c) O_tile(i, c) = visible == 0 ? 0 : row.O[c] / row.l;
    lse_tile[i] = row.m + std::log(row.l);
  }
)"},
};

}  // namespace workbook::test
