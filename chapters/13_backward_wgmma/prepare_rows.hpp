// Chapter 13, given: LSE and D of each query, and the initialisation of dQ_sum. It is chapter 9's prepare_rows, but LSE
// and D have separate arrays, because TMA loads the LSE with Q and D with dO.
//
// Source: Dao et al. 2022, appendix B.2: D = rowsum(dO∘O).
#pragma once

#include "blocks.hpp"

namespace ch13 {
namespace {

/// For each of the `count` padded rows, padded(Nq) per head: LSE·log2(e) and D = rowsum(dO∘O) - dLSE. The LSE is +inf,
/// so that P = 0, for padding and for queries without an unmasked key. d / 8 adjacent lanes compute a query. Clears
/// dQ_sum, and the semaphores if any.
template <int d, class Element>
__global__ void prepare_rows(const Element* __restrict__ O,   // (heads, Nq, d)
                             const Element* __restrict__ dO,  // (heads, Nq, d)
                             const float* __restrict__ lse,   // (heads, Nq), natural logarithm; -inf: all keys masked
                             const float* __restrict__ dlse,  // (heads, Nq), or nullptr: 0
                             float* __restrict__ lse_log2,    // (heads, padded(Nq))
                             float* __restrict__ D_rows,      // (heads, padded(Nq))
                             float* __restrict__ dQ_sum,      // (heads, padded(Nq), d)
                             int* __restrict__ semaphores,    // (1 + heads·padded(Nq) / 64), or nullptr
                             std::int64_t count, int Nq) {
  constexpr int lanes = d / 8;
  const std::int64_t thread = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, padded_row = thread / lanes;
  if (padded_row >= count) return;  // whole warps: count is a multiple of 128
  const int query = padded_row % padded(Nq), lane = threadIdx.x % lanes;
  const std::int64_t row = padded_row / padded(Nq) * Nq + query;
  reinterpret_cast<float4*>(dQ_sum)[2 * thread] = reinterpret_cast<float4*>(dQ_sum)[2 * thread + 1] = {0, 0, 0, 0};
  if (semaphores != nullptr && lane == 0 && padded_row % 64 == 0) semaphores[1 + padded_row / 64] = 0;
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
  for (int step = lanes / 2; step > 0; step /= 2) D += __shfl_xor_sync(all_lanes, D, step);
  if (lane != 0) return;
  const bool unmasked = query < Nq && lse[row] != -INFINITY;
  lse_log2[padded_row] = unmasked ? lse[row] * log2_e : INFINITY;
  D_rows[padded_row] = query < Nq && dlse != nullptr ? D - dlse[row] : D;
}

}  // namespace
}  // namespace ch13
