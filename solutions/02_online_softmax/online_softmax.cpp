// Chapter 2, online softmax: the running state of a row, the merge of two states, and attention tile by tile.
//
// Source: Milakov & Gimelshein 2018, section 3; Dao et al. 2022, section 3.1; Dao 2023, section 3.1.1.
// Test it: ./workbook test 2
#include "online_softmax.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "common/cuda/todo.hpp"

namespace ch02 {

SoftmaxState online_softmax(std::span<const float> x, std::int64_t block) {
  // TODO(2.1) Walk over x once, block by block, and return the running maximum m and the sum l of exp(x - m). When a
  // block raises m, rescale l. Blocks of masked scores (-inf) change nothing (about 14 lines).
  // BEGIN 2.1
  const std::int64_t n = std::ssize(x);
  float m = minus_infinity;
  float l = 0;
  for (std::int64_t first = 0; first < n; first += block) {
    const std::int64_t last = std::min(first + block, n);  // one past the block; the last block may be short

    float m_new = m;
    for (std::int64_t j = first; j < last; ++j) m_new = std::max(m_new, x[j]);
    // While every score so far is masked, m_new is -inf, and -inf - (-inf) is NaN: subtract 0 instead.
    const float m_safe = m_new == minus_infinity ? 0 : m_new;

    l *= std::exp(m - m_safe);
    for (std::int64_t j = first; j < last; ++j) l += std::exp(x[j] - m_safe);
    m = m_new;
  }
  return {m, l};
  // END 2.1
}

float softmax(std::span<const float> x, std::span<float> P, std::int64_t block) {
  const auto [m, l] = online_softmax(x, block);
  const float m_safe = m == minus_infinity ? 0 : m;
  for (std::size_t j = 0; j < x.size(); ++j) P[j] = l == 0 ? 0 : std::exp(x[j] - m_safe) / l;
  return m + std::log(l);
}

void merge(PartialState& into, const PartialState& from) {
  // TODO(2.2) Bring both parts to their common maximum, then add l and O. An empty part (m = -inf) changes nothing, and
  // two empty parts stay empty (about 9 lines).
  // BEGIN 2.2
  const float m = std::max(into.m, from.m);
  const float m_safe = m == minus_infinity ? 0 : m;  // both parts empty: both factors are exp(-inf) = 0
  const float into_factor = std::exp(into.m - m_safe);
  const float from_factor = std::exp(from.m - m_safe);

  into.m = m;
  into.l = into.l * into_factor + from.l * from_factor;
  for (std::size_t c = 0; c < into.O.size(); ++c) into.O[c] = into.O[c] * into_factor + from.O[c] * from_factor;
  // END 2.2
}

void attend_tile(Matrix<const float> Q_tile, Matrix<const float> K, Matrix<const float> V, Matrix<float> O_tile,
                 std::span<float> lse_tile, std::int64_t first_query, std::int64_t Nq, std::int64_t Bc, float scale,
                 bool causal) {
  // TODO(2.3) For every tile of Bc keys: the scores of the tile (masked: -inf); then, row by row, the new maximum, the
  // rescaling of l and O, and what the tile adds to both. After the last tile: one division a row, and the LSE. Row i
  // of the tile is query first_query + i; O_tile holds NaN when you get it (about 40 lines).
  // BEGIN 2.3
  const std::int64_t rows = Q_tile.rows(), d = Q_tile.columns(), Nk = K.rows();
  std::vector<float> S_values(rows * Bc), m(rows, minus_infinity), l(rows, 0.0f);
  const Matrix<float> S("S", S_values, rows, Bc);
  std::ranges::fill(O_tile.elements(), 0.0f);

  for (std::int64_t first_key = 0; first_key < Nk; first_key += Bc) {
    const std::int64_t keys = std::min(Bc, Nk - first_key);  // the last tile may be ragged

    // S = scale * Q Kᵀ, (rows, keys). A tile that lies wholly above the diagonal is computed too, and every score of it
    // masked; chapter 5 skips it.
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t visible = workbook::visible_keys(first_query + i, Nq, Nk, causal) - first_key;  // in this tile
      const auto q = Q_tile.row(i);
      for (std::int64_t j = 0; j < keys; ++j) {
        const auto k = K.row(first_key + j);
        float dot = 0;
        for (std::int64_t c = 0; c < d; ++c) dot += q[c] * k[c];
        S(i, j) = j < visible ? scale * dot : minus_infinity;
      }
    }

    for (std::int64_t i = 0; i < rows; ++i) {
      const auto o = O_tile.row(i);

      float m_new = m[i];
      for (std::int64_t j = 0; j < keys; ++j) m_new = std::max(m_new, S(i, j));
      const float m_safe = m_new == minus_infinity ? 0 : m_new;  // -inf: this row has seen no visible key yet

      // l and O were sums of exp(s - m); from now on they are sums of exp(s - m_new).
      const float rescale = std::exp(m[i] - m_safe);
      l[i] *= rescale;
      for (std::int64_t c = 0; c < d; ++c) o[c] *= rescale;

      // l += sum of P, O += P V, one key at a time.
      for (std::int64_t j = 0; j < keys; ++j) {
        const auto v = V.row(first_key + j);
        const float p = std::exp(S(i, j) - m_safe);
        l[i] += p;
        for (std::int64_t c = 0; c < d; ++c) o[c] += p * v[c];
      }
      m[i] = m_new;
    }
  }

  for (std::int64_t i = 0; i < rows; ++i) {
    for (float& o : O_tile.row(i)) o = l[i] == 0 ? 0 : o / l[i];
    lse_tile[i] = m[i] + std::log(l[i]);  // -inf for a row without a visible key
  }
  // END 2.3
}

void tiled_attention(const workbook::AttentionCall& call, std::int64_t Br, std::int64_t Bc) {
  if (Br < 1 || Bc < 1) throw std::invalid_argument("tiled_attention: Br and Bc must be at least 1");
  const std::int64_t heads = call.shape.B * call.shape.H, Nq = call.shape.Nq, Nk = call.shape.Nk, d = call.shape.d;
  Br = std::min(Br, Nq);
  Bc = std::min(Bc, Nk);

  for (std::int64_t n = 0; n < heads; ++n) {
    const auto Q = workbook::head("Q", call.Q, 0, n, heads, Nq, d);
    const auto K = workbook::head("K", call.K, 0, n, heads, Nk, d);
    const auto V = workbook::head("V", call.V, 0, n, heads, Nk, d);
    const auto O = workbook::head("O", call.O, 0, n, heads, Nq, d);
    const auto lse = call.lse.subspan(n * Nq, Nq);
    for (std::int64_t first_query = 0; first_query < Nq; first_query += Br) {
      const std::int64_t rows = std::min(Br, Nq - first_query);
      attend_tile(Q.rows_from(first_query, rows), K, V, O.rows_from(first_query, rows), lse.subspan(first_query, rows),
                  first_query, Nq, Bc, call.scale, call.causal);
    }
  }
}

}  // namespace ch02
