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
  // TODO(2.1) Loop over x once, in blocks, and return the maximum m and the sum l of exp(x - m). If a block raises m,
  // rescale l. Blocks of masked scores (-inf) change nothing (about 14 lines).
  // BEGIN 2.1
  WORKBOOK_TODO(2.1);
  // END 2.1
}

float softmax(std::span<const float> x, std::span<float> P, std::int64_t block) {
  const auto [m, l] = online_softmax(x, block);
  const float m_safe = m == minus_infinity ? 0 : m;
  for (std::size_t j = 0; j < x.size(); ++j) P[j] = l == 0 ? 0 : std::exp(x[j] - m_safe) / l;
  return m + std::log(l);
}

void merge(PartialState& into, const PartialState& from) {
  // TODO(2.2) Rescale both states to their common maximum, then add l and O. An empty state (m = -inf) changes nothing,
  // and merging two empty states gives an empty state (about 9 lines).
  // BEGIN 2.2
  WORKBOOK_TODO(2.2);
  // END 2.2
}

void attend_tile(Matrix<const float> Q_tile, Matrix<const float> K, Matrix<const float> V, Matrix<float> O_tile,
                 std::span<float> lse_tile, std::int64_t first_query, std::int64_t Nq, std::int64_t Bc, float scale,
                 bool causal) {
  // TODO(2.3) For every K/V tile: its scores (masked: -inf); then, for each row, the new maximum, the rescaling of l
  // and O, and the tile's terms of both. After the last tile: one division per row, and the LSE. Row i of the tile is
  // query first_query + i; O_tile holds NaN at first (about 40 lines).
  // BEGIN 2.3
  WORKBOOK_TODO(2.3);
  // END 2.3
}

void tiled_attention(const workbook::AttentionCall& call, std::int64_t Br, std::int64_t Bc) {
  if (Br < 1 || Bc < 1) throw std::invalid_argument("tiled_attention: Br and Bc must be at least 1");
  const std::int64_t heads = call.shape.B * call.shape.H, Nq = call.shape.Nq, Nk = call.shape.Nk, d = call.shape.d;
  Br = std::min(Br, Nq);
  Bc = std::min(Bc, Nk);

  for (std::int64_t n = 0; n < heads; ++n) {
    const auto Q = workbook::head("Q", call.Q, 0, n, heads, Nq, d);
    const auto K = workbook::head("K", call.K, 0, call.shape.kv_head(n), heads, Nk, d);
    const auto V = workbook::head("V", call.V, 0, call.shape.kv_head(n), heads, Nk, d);
    const auto O = workbook::head("O", call.O, 0, n, heads, Nq, d);
    const auto lse = call.lse.subspan(n * Nq, Nq);
    for (std::int64_t first_query = 0; first_query < Nq; first_query += Br) {
      const std::int64_t rows = std::min(Br, Nq - first_query);
      attend_tile(Q.rows_from(first_query, rows), K, V, O.rows_from(first_query, rows), lse.subspan(first_query, rows),
                  first_query, Nq, Bc, call.scale, call.causal());
    }
  }
}

}  // namespace ch02
