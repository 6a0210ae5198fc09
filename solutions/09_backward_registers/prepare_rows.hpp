// Chapter 9: LSE and D of each query, and zeros for dQ_sum.
//
// Source: Dao et al. 2022, appendix B.2: D = rowsum(dO∘O).
// Test it: ./workbook test 9.1
#pragma once

#include "dQ_sum.hpp"

namespace ch09 {
namespace {

/// Writes the row statistics of `count` rows, padded(Nq) per head: LSE·log2(e) in x, D = rowsum(dO∘O) - dLSE in y. The
/// LSE is +inf where P must be 0: for a fully masked query, and for the padding. d / 8 adjacent lanes work on one row.
/// Also clears dQ_sum, and the semaphores if there are any.
template <int d>
__global__ void prepare_rows(const Element* __restrict__ O,   // (heads, Nq, d)
                             const Element* __restrict__ dO,  // (heads, Nq, d)
                             const float* __restrict__ lse,   // (heads, Nq), natural logarithm; -inf: fully masked
                             const float* __restrict__ dlse,  // (heads, Nq), or nullptr: 0
                             float2* __restrict__ row_stats,  // (heads, padded(Nq))
                             float* __restrict__ dQ_sum,      // (heads, padded(Nq), d)
                             int* __restrict__ semaphores,    // (1 + heads·padded(Nq) / 4), or nullptr
                             std::int64_t count, int Nq) {
  constexpr int lanes = d / 8;
  const std::int64_t thread = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, padded_row = thread / lanes;
  if (padded_row >= count) return;  // whole warps: count is a multiple of 64
  const int query = padded_row % padded(Nq), lane = threadIdx.x % lanes;
  const std::int64_t row = padded_row / padded(Nq) * Nq + query;
  reinterpret_cast<float4*>(dQ_sum)[2 * thread] = reinterpret_cast<float4*>(dQ_sum)[2 * thread + 1] = {0, 0, 0, 0};
  if (semaphores != nullptr && lane == 0 && padded_row % 4 == 0) semaphores[1 + padded_row / 4] = 0;
  if (semaphores != nullptr && thread == 0) semaphores[0] = 0;
  float D = 0;
  if (query < Nq) {
    const uint4 O_vector = reinterpret_cast<const uint4*>(O)[row * lanes + lane];
    const uint4 dO_vector = reinterpret_cast<const uint4*>(dO)[row * lanes + lane];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      D += float(reinterpret_cast<const Element*>(&O_vector)[i]) *
           float(reinterpret_cast<const Element*>(&dO_vector)[i]);
  }
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) D += __shfl_xor_sync(0xffffffff, D, step);
  if (lane != 0) return;
  // TODO(9.1) row_stats[padded_row]: LSE·log2(e) or +inf, and D - dLSE; dLSE is 0 if dlse is nullptr (about 5 lines).
  // BEGIN 9.1
  float2 stats = {INFINITY, D};
  if (query < Nq) {
    if (lse[row] != -INFINITY) stats.x = lse[row] * log2_e;
    if (dlse != nullptr) stats.y -= dlse[row];
  }
  row_stats[padded_row] = stats;
  // END 9.1
}

}  // namespace
}  // namespace ch09
