// Chapter 1, naive attention: O = softmax(scale·QKᵀ) V in three steps, with S and P written out in full.
//
// This is the baseline: every later chapter computes the same O and LSE and is compared with this one. What it costs:
// S and P have Nq·Nk elements per head. FlashAttention avoids storing them.
//
// Source: Vaswani et al. 2017, section 3.2.1, equation (1); Dao et al. 2022, section 2.2, Algorithm 0.
// Test it: ./workbook test 1
#pragma once

#include <limits>
#include <span>

#include "common/attention/setting.hpp"

namespace ch01 {

using workbook::Matrix;

/// A masked score, and the LSE of a row without a visible key.
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Exercise 1.1. S = scale * Q Kᵀ, with masked scores -inf.
/// Q (Nq, d), K (Nk, d) -> S (Nq, Nk). Query i attends to the first visible_keys(i, Nq, Nk, causal) keys.
void scaled_scores(Matrix<const float> Q, Matrix<const float> K, Matrix<float> S, float scale, bool causal);

/// Exercise 1.2. P = softmax of each row of S; lse = the natural logarithm of the sum of exp over each row of S.
/// S (Nq, Nk) -> P (Nq, Nk), lse (Nq). A fully masked row gives P = 0 and lse = -inf.
void softmax_rows(Matrix<const float> S, Matrix<float> P, std::span<float> lse);

/// Exercise 1.3. O = P V.
/// P (Nq, Nk), V (Nk, d) -> O (Nq, d).
void weighted_values(Matrix<const float> P, Matrix<const float> V, Matrix<float> O);

/// Attention for every head (given). Stores S and P of all heads, (B, H, Nq, Nk) each. Throws workbook::cuda::Refused,
/// before it allocates anything, if they do not fit in the free memory.
void attention(const workbook::AttentionCall& call);

}  // namespace ch01
