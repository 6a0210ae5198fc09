// Chapter 6, given: how the variant that adds dQ by atomics keeps its sums in device memory. backward.hpp says what it
// is for.
//
// Source: Dao 2023, Algorithm 2.
// Test it: ./workbook test 6
#pragma once

#include <cstdint>

#include "fragments.hpp"

namespace ch06 {
namespace {

using LeftTransposed = wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::col_major>;

/// What is accumulated in dQ_sum is never read but by a lane that holds the same elements of the same fragment: so a
/// fragment of 16 x 16 lies there element by element, the lanes side by side, and nobody has to know which is which.
/// `rows_16` counts 16 rows of Q over all heads, `columns_16` 16 columns.
template <int d>
__device__ __forceinline__ float* place(float* dQ_sum, std::int64_t rows_16, int columns_16) {
  return dQ_sum + (rows_16 * (d / 16) + columns_16) * 256 + threadIdx.x % lanes;
}

/// dQ += dS K of a K/V tile for the Q tile that begins with this query of a head, Nq queries long: (Br, Bc),
/// (Bc, d) -> (Br, d). dSᵀ is what lies in shared memory, and each warp has 16 columns.
template <int d, int Bc, int dS_padded>
__device__ __forceinline__ void add_dQ(const Element (&dS)[Bc][dS_padded], const Element (&K)[Bc][d + pad],
                                       float* dQ_sum, std::int64_t head, std::int64_t query, std::int64_t Nq) {
  constexpr int tall = (dS_padded - pad) / 16;
  const int warp = threadIdx.x / lanes;
  Accumulator dQ[tall][1];
  clear(dQ);
#pragma unroll
  for (int key = 0; key < Bc; key += 16) {
    Right K_fragment;
    wmma::load_matrix_sync(K_fragment, &K[key][16 * warp], d + pad);
#pragma unroll
    for (int r = 0; r < tall; ++r) {
      LeftTransposed dS_fragment;
      wmma::load_matrix_sync(dS_fragment, &dS[key][16 * r], dS_padded);
      wmma::mma_sync(dQ[r][0], dS_fragment, K_fragment, dQ[r][0]);
    }
  }
  const std::int64_t rows_16 = head * ((Nq + 15) / 16) + query / 16;
#pragma unroll
  for (int r = 0; r < tall; ++r) {
    if (query + 16 * r < Nq) {
#pragma unroll
      for (int e = 0; e < elements; ++e) atomicAdd(place<d>(dQ_sum, rows_16 + r, warp) + lanes * e, dQ[r][0].x[e]);
    }
  }
}

__global__ void clear_dQ_sum(float* dQ_sum,  // (fours, 4)
                             std::int64_t fours) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < fours) reinterpret_cast<float4*>(dQ_sum)[i] = {0, 0, 0, 0};
}

/// dQ = scale·dQ_sum, a warp for 16 rows.
template <int d, class Gradient>
__global__ void write_dQ(float* dQ_sum,              // (heads, Nq rounded up to 16, d), in fragments: see place()
                         Gradient* __restrict__ dQ,  // (heads, Nq, d)
                         std::int64_t heads, std::int64_t Nq, float scale) {
  __shared__ __align__(32) Element scratch[4][16][32 + pad];
  const std::int64_t of_head = (Nq + 15) / 16;
  const int warp = threadIdx.x / lanes;
  const std::int64_t rows_16 = std::int64_t(blockIdx.x) * 4 + warp, first = rows_16 % of_head * 16;
  if (rows_16 >= heads * of_head) return;
  Accumulator sum[1][d / 16];
#pragma unroll
  for (int n = 0; n < d / 16; ++n) {
#pragma unroll
    for (int e = 0; e < elements; ++e) sum[0][n].x[e] = place<d>(dQ_sum, rows_16, n)[lanes * e];
  }
  write_gradient<d>(dQ + (rows_16 / of_head * Nq + first) * d, min(std::int64_t(16), Nq - first), 0, scale, sum,
                    scratch[warp], 0);
}

}  // namespace
}  // namespace ch06
