// Chapter 15, backward: P and dS of each pair, and the gradient of the sinks.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; OpenAI 2025 (gpt-oss), section 2.
// Test it: ./workbook test 15.11
#pragma once

#include "gradient_tiles.hpp"
#include "masks.hpp"
#include "scores.hpp"

namespace ch15 {
namespace {

/// K Qᵀ -> Pᵀ = exp2(score_mod(Q_i·K_j) - LSE) and dPᵀ -> dSᵀ = P∘(dP - D)∘derivative, (32, 8·parts), all in fp32. The
/// keys start at first_key, the queries at first_query. row_stats: LSE·log2(e) in x and D in y, per query. In a tile
/// that is not full (`masked`) P and dS of masked pairs become 0.
template <bool masked, int parts, class ScoreMod>
__device__ __forceinline__ void form_P_and_dS(Result<parts>& S, Result<parts>& dP, const float2* row_stats,
                                              const ScoreMod& score_mod, const WindowMask& mask, int first_key,
                                              int first_query) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < parts; ++j) {
    const float4 stats = reinterpret_cast<const float4*>(row_stats)[4 * j + lane % 4];  // LSE and D of two queries
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto [row, column] = position_in_part(lane, e);
        const int key = first_key + 16 * i + row, query = first_query + 8 * j + column;
        const float LSE = e % 2 == 0 ? stats.x : stats.z, D = e % 2 == 0 ? stats.y : stats.w;
        // TODO(15.11) Replace S[i][j][e] by P of this pair, and dP[i][j][e] by dS. Both are 0 if the tile is masked and
        // the query does not attend to the key. Compute the derivative from the dot product, not from a masked score
        // (about 6 lines).
        // BEGIN 15.11
        const Range keys = masked ? mask.key_range(query) : Range{0, 0};
        const bool unmasked = !masked || (keys.first <= key && key < keys.last);
        const float qk = S[i][j][e], distance = float(query + mask.Nk - mask.Nq - key);
        const float P = unmasked ? exp2_ftz(score_mod(qk, distance) - LSE) : 0;
        S[i][j][e] = P;
        dP[i][j][e] = unmasked ? P * (dP[i][j][e] - D) * score_mod.derivative(qk) : 0;
        // END 15.11
      }
  }
}

/// dsink = -Σ_i P_i·D_i over the queries of a head, where P_i = exp(sink - LSE_i) is the weight of the sink. One warp
/// per head. Rows of padding have an LSE of +inf.
__global__ void sink_gradient(const float2* __restrict__ row_stats,  // (batch, heads, padded): LSE·log2(e), D
                              const float* __restrict__ sink,        // (heads), natural units
                              float* __restrict__ dsink,             // (heads)
                              int batch, int heads, int padded) {
  const int head = blockIdx.x, lane = threadIdx.x;
  const float sink_log2 = sink[head] * log2_e;
  float sum = 0;
  for (int b = 0; b < batch; ++b) {
    const float2* const head_stats = row_stats + (std::int64_t(b) * heads + head) * padded;
    // TODO(15.12) Rows lane, lane + 32, ... of head_stats: subtract the sink's weight times D from `sum`. The sum over
    // the lanes follows the loop over the batch (about 4 lines).
    // BEGIN 15.12
    for (int row = lane; row < padded; row += 32) {
      const float2 stats = head_stats[row];
      sum -= exp2_ftz(sink_log2 - stats.x) * stats.y;
    }
    // END 15.12
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(all_lanes, sum, step);
  if (lane == 0) dsink[head] = sum;
}

}  // namespace
}  // namespace ch15
