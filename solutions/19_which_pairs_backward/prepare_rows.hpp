// Chapter 19, given: LSE and D of each query, and the initialisation of dQ_sum, as in chapter 13, but in padded rows
// (sequences.hpp); and the gradient of the sinks, as in chapter 15.
//
// Source: Dao et al. 2022, appendix B.2: D = rowsum(dO∘O); OpenAI 2025 (gpt-oss), section 2.
#pragma once

#include "blocks.hpp"

namespace ch19 {
namespace {

/// For each of the `count` padded rows, `padded` per head: LSE·log2(e) and D = rowsum(dO∘O) - dLSE. The LSE is +inf, so
/// that P = 0, for padding and for queries without an unmasked key. d / 8 adjacent lanes compute a query. Clears
/// dQ_sum, and the semaphores if any.
template <int d, class Element>
__global__ void prepare_rows(const Element* __restrict__ O,   // (B·H, Nq, d)
                             const Element* __restrict__ dO,  // (B·H, Nq, d)
                             const float* __restrict__ lse,   // (B·H, Nq), natural logarithm; -inf: all keys masked
                             const float* __restrict__ dlse,  // (B·H, Nq), or nullptr: 0
                             float* __restrict__ lse_log2,    // (B·H, padded)
                             float* __restrict__ D_rows,      // (B·H, padded)
                             float* __restrict__ dQ_sum,      // (B·H, padded, d)
                             int* __restrict__ semaphores,    // (1 + B·H·padded / 64), or nullptr
                             const int* __restrict__ starts, std::int64_t count, int padded, int Nq) {
  constexpr int lanes = d / 8;
  const std::int64_t thread = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, padded_row = thread / lanes;
  if (padded_row >= count) return;  // whole warps: count is a multiple of 128
  const auto [sequence, query] = row_of(starts, Nq, int(padded_row % padded));
  const int lane = threadIdx.x % lanes;
  const bool exists = query < sequence.length;
  const std::int64_t row = padded_row / padded * Nq + sequence.first + query;
  reinterpret_cast<float4*>(dQ_sum)[2 * thread] = reinterpret_cast<float4*>(dQ_sum)[2 * thread + 1] = {0, 0, 0, 0};
  if (semaphores != nullptr && lane == 0 && padded_row % 64 == 0) semaphores[1 + padded_row / 64] = 0;
  if (semaphores != nullptr && thread == 0) semaphores[0] = 0;
  float D = 0;
  if (exists) {
    const uint4 O_vector = reinterpret_cast<const uint4*>(O)[row * lanes + lane];
    const uint4 dO_vector = reinterpret_cast<const uint4*>(dO)[row * lanes + lane];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      D += float(reinterpret_cast<const Element*>(&O_vector)[i]) *
           float(reinterpret_cast<const Element*>(&dO_vector)[i]);
  }
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) D += __shfl_xor_sync(all_lanes, D, step);
  if (lane != 0) return;
  const bool unmasked = exists && lse[row] != -INFINITY;
  lse_log2[padded_row] = unmasked ? lse[row] * log2_e : INFINITY;
  D_rows[padded_row] = exists && dlse != nullptr ? D - dlse[row] : D;
}

/// dsink = -Σ_i P_i·D_i over the queries of a head, where P_i = exp(sink - LSE_i) is the weight of the sink. One warp
/// per head. Rows of padding have an LSE of +inf.
__global__ void sink_gradient(const float* __restrict__ lse_log2,  // (batch, heads, padded): LSE·log2(e)
                              const float* __restrict__ D_rows,    // (batch, heads, padded)
                              const float* __restrict__ sink,      // (heads), natural units
                              float* __restrict__ dsink,           // (heads)
                              int batch, int heads, int padded) {
  const int head = blockIdx.x, lane = threadIdx.x;
  const float sink_log2 = sink[head] * log2_e;
  float sum = 0;
  for (int b = 0; b < batch; ++b) {
    const std::int64_t first = (std::int64_t(b) * heads + head) * padded;
    for (int row = lane; row < padded; row += 32)
      sum -= exp2_ftz(sink_log2 - lse_log2[first + row]) * D_rows[first + row];
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(all_lanes, sum, step);
  if (lane == 0) dsink[head] = sum;
}

}  // namespace
}  // namespace ch19
