// Chapter 2, online softmax: the same O and LSE as chapter 1, in one pass through the keys and without S and P.
//
// What changes: softmax needs a row's maximum and sum, and chapter 1 reads the whole row to get them. Here both are a
// running state (m, l). A block of keys that raises the maximum rescales the accumulated sums by exp(m_old - m_new), so
// K and V can be streamed tile by tile. What it costs: the same multiplications, one factor per row and tile, and
// O(Br·Bc) extra memory for any N.
//
// Source: Milakov & Gimelshein 2018, section 3, Algorithm 3, and section 3.1 (online softmax and its merge);
// Rabe & Staats 2021 (attention by chunks of keys); Dao et al. 2022, section 3.1, Algorithm 1 (tiles);
// Dao 2023, section 3.1.1, Algorithm 1 (one division at the end, the LSE).
// Test it: ./workbook test 2
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/attention/setting.hpp"

namespace ch02 {

using workbook::Matrix;

/// A masked score, and the maximum of an empty set of scores.
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// The running state of a softmax: the maximum of the scores x so far, and the sum of exp(x - m) over them. An empty
/// set, and a set of masked scores only, has the state (-inf, 0).
struct SoftmaxState {
  float m = minus_infinity;
  float l = 0;
};

/// Exercise 2.1. The state of a row's scores x (n), from one pass in blocks of `block` >= 1 scores; the last block may
/// be short. Some or all scores may be -inf.
SoftmaxState online_softmax(std::span<const float> x, std::int64_t block);

/// P (n) = softmax of x (n), from the state of exercise 2.1 (given). Returns the LSE of x.
float softmax(std::span<const float> x, std::span<float> P, std::int64_t block);

/// One query's attention over a set of keys, not divided by l: O is the sum of exp(s_j - m) V_j over the set.
/// The state of an empty set, or of masked keys only, is m = -inf, l = 0, and O = 0 (d zeros).
struct PartialState {
  float m = minus_infinity;
  float l = 0;
  std::vector<float> O;  ///< (d)
};

/// Exercise 2.2. `into` becomes the state of the union of both sets, which have no key in common. Either may be empty.
void merge(PartialState& into, const PartialState& from);

/// Exercise 2.3. Attention of one Q tile over all keys of the head, Bc >= 1 keys at a time; the last K/V tile
/// may be short. Q_tile (rows, d), K (Nk, d), V (Nk, d) -> O_tile (rows, d), lse_tile (rows).
/// Row i of the tile is query first_query + i of the head's Nq queries. Extra memory: rows·(Bc + 2) floats.
void attend_tile(Matrix<const float> Q_tile, Matrix<const float> K, Matrix<const float> V, Matrix<float> O_tile,
                 std::span<float> lse_tile, std::int64_t first_query, std::int64_t Nq, std::int64_t Bc, float scale,
                 bool causal);

/// Attention for every head, in tiles of Br queries and Bc keys (given).
void tiled_attention(const workbook::AttentionCall& call, std::int64_t Br, std::int64_t Bc);

}  // namespace ch02
