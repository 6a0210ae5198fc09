// Chapter 15, backward: the gradients at the scores. P and dS of each pair, and the gradient of the sinks.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; OpenAI 2025 (gpt-oss), section 2.
// Test it: ./workbook test 15.11
#pragma once

#include "masks.hpp"
#include "scores.hpp"

namespace ch15 {
namespace {

/// What a lane holds of a result (16, 8), four floats; and of 32 rows and 8·parts columns: two row tiles of 16.
using Part = Fragment<float, 4>;
template <int parts>
using Result = Part[2][parts];

/// K Qᵀ -> Pᵀ = exp2(change(Q_i·K_j) - LSE) and dPᵀ -> dSᵀ = P∘(dP - D)∘derivative, (32, 8·parts), all in fp32. The
/// keys begin at first_key, the queries at first_query. rows: what the queries bring, LSE·log2(e) in x and D in y. In a
/// tile that is not full (`masked`) P and dS of pairs that do not count become 0.
template <bool masked, int parts, class Change>
__device__ __forceinline__ void form_P_and_dS(Result<parts>& S, Result<parts>& dP, const float2* rows,
                                              const Change& change, const SeenKeys& seen, int first_key,
                                              int first_query) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < parts; ++j) {
    const float4 two = reinterpret_cast<const float4*>(rows)[4 * j + lane % 4];  // LSE, D, and those of the next query
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const auto [row, column] = place_in_D(lane, e);
        const int key = first_key + 16 * i + row, query = first_query + 8 * j + column;
        const float LSE = e % 2 == 0 ? two.x : two.z, D = e % 2 == 0 ? two.y : two.w;
        // TODO(15.11) P of this pair in place of S[i][j][e], and dS in place of dP[i][j][e]: both are 0 if the tile is
        // masked and the query does not see the key. The derivative is that at the product, not at a score that is -inf
        // (about 6 lines).
        // BEGIN 15.11
        const Range keys = masked ? seen.of(query) : Range{0, 0};
        const bool counts = !masked || (keys.first <= key && key < keys.last);
        const float product = S[i][j][e], distance = float(query + seen.Nk - seen.Nq - key);
        const float P = counts ? exp2_ftz(change(product, distance) - LSE) : 0;
        S[i][j][e] = P;
        dP[i][j][e] = counts ? P * (dP[i][j][e] - D) * change.derivative(product) : 0;
        // END 15.11
      }
  }
}

/// dsink = -Σ_i P_i·D_i over the queries of a head, where P_i = exp(sink - LSE_i) is the weight of the sink. A warp for
/// each head. Padded rows bring an LSE of +inf.
__global__ void sink_gradient(const float2* __restrict__ rows,  // (batch, heads, padded): LSE·log2(e), D
                              const float* __restrict__ sink,   // (heads), natural units
                              float* __restrict__ dsink,        // (heads)
                              int batch, int heads, int padded) {
  const int head = blockIdx.x, lane = threadIdx.x;
  const float sink_log2 = sink[head] * log2_e;
  float sum = 0;
  for (int b = 0; b < batch; ++b) {
    const float2* const of_head = rows + (std::int64_t(b) * heads + head) * padded;
    // TODO(15.12) Each lane adds up what every 32nd row has: the sink's weight times D. Behind the loop over the batch
    // stands the sum over the lanes (about 4 lines).
    // BEGIN 15.12
    for (int row = lane; row < padded; row += 32) {
      const float2 brings = of_head[row];
      sum -= exp2_ftz(sink_log2 - brings.x) * brings.y;
    }
    // END 15.12
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(all_lanes, sum, step);
  if (lane == 0) dsink[head] = sum;
}

}  // namespace
}  // namespace ch15
