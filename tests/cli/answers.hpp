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

/// Realistic mistakes, as changes to the book's answer.
struct StudentsMistake {
  std::string exercise, title, find, replace;
  std::string
      explanation;  ///< required text of the message or the likely cause; empty: no known wrong solution is like it
};

/// Two per exercise; none of them is a mutant.
inline const std::vector<StudentsMistake> students_mistakes{
    {"1.1", "masked scores are not written", "S(i, j) = j < visible ? scale * dot : minus_infinity;",
     "if (j < visible) S(i, j) = scale * dot;", "never written"},
    {"1.1", "the dot product goes on from the key before",
     "for (std::int64_t j = 0; j < Nk; ++j) {\n      float dot = 0;",
     "float dot = 0;\n    for (std::int64_t j = 0; j < Nk; ++j) {", ""},
    {"1.2", "the sum goes on from the row before", "float l = 0;", "static float l = 0;\n    if (i == 0) l = 0;", ""},
    {"1.2", "0 / 0 in a fully masked row", "l == 0 ? 0 : P(i, j) / l", "P(i, j) / l", ""},
    {"1.3", "as many keys as there are columns", "for (std::int64_t j = 0; j < Nk; ++j)",
     "for (std::int64_t j = 0; j < d; ++j)", "outside a matrix"},
    {"1.3", "the key's row of O in place of the query's", "O(i, c) += P(i, j)", "O(j, c) += P(i, j)",
     "outside a matrix"},
    {"2.1", "rescaled after the block was added",
     "    l *= std::exp(m - m_safe);\n    for (std::int64_t j = first; j < last; ++j) l += std::exp(x[j] - m_safe);\n",
     "    for (std::int64_t j = first; j < last; ++j) l += std::exp(x[j] - m_safe);\n    l *= std::exp(m - m_safe);\n",
     ""},
    {"2.1", "m is never updated", "    m = m_new;\n", "", ""},
    {"2.2", "into.m keeps its old value", "  into.m = m;\n", "", ""},
    {"2.2", "the two factors are swapped",
     "const float into_factor = std::exp(into.m - m_safe);\n  const float from_factor = std::exp(from.m - m_safe);",
     "const float from_factor = std::exp(into.m - m_safe);\n  const float into_factor = std::exp(from.m - m_safe);",
     ""},
    {"2.3", "O is cleared for every tile", "    const std::int64_t keys = std::min(Bc, Nk - first_key);",
     "    std::ranges::fill(O_tile.elements(), 0.0f);\n    const std::int64_t keys = std::min(Bc, Nk - first_key);",
     ""},
    {"2.3", "the mask counts keys from the first one of all", ", Nk, causal) - first_key;", ", Nk, causal);", "mask"},
};

}  // namespace workbook::test
