// Chapter 9: what each query brings to the backward pass, and the sums of dQ at their beginning.
//
// Source: Dao et al. 2022, appendix B.2: D = rowsum(dO∘O).
// Test it: ./workbook test 9.1
#pragma once

#include "dQ_sum.hpp"

namespace ch09 {
namespace {

/// For each query of `count`, of heads filled up to padded(Nq) rows: LSE·log2(e), or +inf if its P is to be 0, as for
/// rows that see nothing or do not exist; and D = rowsum(dO∘O) - dLSE. d / 8 neighbouring lanes a query. Clears dQ_sum
/// and semaphores, if there are any.
template <int d>
__global__ void prepare_rows(const Element* __restrict__ O,   // (heads, Nq, d)
                             const Element* __restrict__ dO,  // (heads, Nq, d)
                             const float* __restrict__ lse,   // (heads, Nq), natural logarithm, -inf: sees nothing
                             const float* __restrict__ dlse,  // (heads, Nq), or nullptr: 0
                             float2* __restrict__ rows,       // (heads, padded(Nq))
                             float* __restrict__ dQ_sum,      // (heads, padded(Nq), d)
                             int* __restrict__ semaphores,    // (1 + heads·padded(Nq) / 4), or nullptr
                             std::int64_t count, int Nq) {
  constexpr int lanes = d / 8;
  const std::int64_t thread = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, place = thread / lanes;
  if (place >= count) return;  // whole warps: count is a multiple of 64
  const int query = place % padded(Nq), lane = threadIdx.x % lanes;
  const std::int64_t row = place / padded(Nq) * Nq + query;
  reinterpret_cast<float4*>(dQ_sum)[2 * thread] = reinterpret_cast<float4*>(dQ_sum)[2 * thread + 1] = {0, 0, 0, 0};
  if (semaphores != nullptr && lane == 0 && place % 4 == 0) semaphores[1 + place / 4] = 0;
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
  for (int step = lanes / 2; step > 0; step /= 2) D += __shfl_xor_sync(0xffffffff, D, step);
  if (lane != 0) return;
  // TODO(9.1) What this query brings. Where dlse is given, D takes it (about 5 lines).
  // BEGIN 9.1
  float2 brings = {INFINITY, D};
  if (query < Nq) {
    if (lse[row] != -INFINITY) brings.x = lse[row] * log2_e;
    if (dlse != nullptr) brings.y -= dlse[row];
  }
  rows[place] = brings;
  // END 9.1
}

}  // namespace
}  // namespace ch09
