// Chapter 13, given: what each query brings to the backward pass, and the sums of dQ at their beginning. It is chapter
// 9's prepare_rows, with the two numbers of a query in arrays of their own: TMA brings the LSE with Q and D with dO.
//
// Source: Dao et al. 2022, appendix B.2: D = rowsum(dO∘O).
#pragma once

#include "blocks.hpp"

namespace ch13 {
namespace {

/// For each query of `count`, of heads filled up to padded(Nq) rows: LSE·log2(e), or +inf if its P is to be 0, as for
/// rows that see nothing or do not exist; and D = rowsum(dO∘O) - dLSE. d / 8 neighbouring lanes a query. Clears dQ_sum
/// and semaphores, if there are any.
template <int d, class Element>
__global__ void prepare_rows(const Element* __restrict__ O,    // (heads, Nq, d)
                             const Element* __restrict__ dO,   // (heads, Nq, d)
                             const float* __restrict__ lse,    // (heads, Nq), natural logarithm, -inf: sees nothing
                             const float* __restrict__ dlse,   // (heads, Nq), or nullptr: 0
                             float* __restrict__ lse_of_rows,  // (heads, padded(Nq))
                             float* __restrict__ D_of_rows,    // (heads, padded(Nq))
                             float* __restrict__ dQ_sum,       // (heads, padded(Nq), d)
                             int* __restrict__ semaphores,     // (1 + heads·padded(Nq) / 64), or nullptr
                             std::int64_t count, int Nq) {
  constexpr int lanes = d / 8;
  const std::int64_t thread = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, place = thread / lanes;
  if (place >= count) return;  // whole warps: count is a multiple of 128
  const int query = place % padded(Nq), lane = threadIdx.x % lanes;
  const std::int64_t row = place / padded(Nq) * Nq + query;
  reinterpret_cast<float4*>(dQ_sum)[2 * thread] = reinterpret_cast<float4*>(dQ_sum)[2 * thread + 1] = {0, 0, 0, 0};
  if (semaphores != nullptr && lane == 0 && place % 64 == 0) semaphores[1 + place / 64] = 0;
  if (semaphores != nullptr && thread == 0) semaphores[0] = 0;
  float D = 0;
  if (query < Nq) {
    const uint4 O_eight = reinterpret_cast<const uint4*>(O)[row * lanes + lane];
    const uint4 dO_eight = reinterpret_cast<const uint4*>(dO)[row * lanes + lane];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      D += float(reinterpret_cast<const Element*>(&O_eight)[i]) * float(reinterpret_cast<const Element*>(&dO_eight)[i]);
  }
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) D += __shfl_xor_sync(all_lanes, D, step);
  if (lane != 0) return;
  const bool counts = query < Nq && lse[row] != -INFINITY;
  lse_of_rows[place] = counts ? lse[row] * log2_e : INFINITY;
  D_of_rows[place] = query < Nq && dlse != nullptr ? D - dlse[row] : D;
}

}  // namespace
}  // namespace ch13
