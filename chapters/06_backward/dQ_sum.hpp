// Chapter 6, given: the atomic variant's dQ, accumulated in device memory by atomic additions. backward.hpp explains
// the variant.
//
// Source: Dao 2023, Algorithm 2.
// Test it: ./workbook test 6
#pragma once

#include <cstdint>

#include "fragments.hpp"

namespace ch06 {
namespace {

using LeftTransposed = wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::col_major>;

/// The address of this lane's element 0 of a fragment (16, 16) of dQ_sum; element e is 32·e floats after it. All
/// accesses to an element of dQ_sum come from lanes with the same index, so the layout can follow the fragment's
/// registers: element 0 of all 32 lanes, then element 1, and so on. The row and column of an element never matter.
/// `fragment_row` numbers groups of 16 rows of Q over all heads, `fragment_column` groups of 16 columns.
template <int d>
__device__ __forceinline__ float* sum_address(float* dQ_sum, std::int64_t fragment_row, int fragment_column) {
  return dQ_sum + (fragment_row * (d / 16) + fragment_column) * 256 + threadIdx.x % lanes;
}

/// dQ += dS K for one Q tile, whose first row is `query`, and one K/V tile: (Br, Bc) (Bc, d) -> (Br, d). Shared memory
/// holds dSᵀ, so the left operand is loaded transposed. Each warp computes 16 columns.
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
  const std::int64_t fragment_row = head * ((Nq + 15) / 16) + query / 16;
#pragma unroll
  for (int r = 0; r < tall; ++r) {
    if (query + 16 * r < Nq) {
#pragma unroll
      for (int e = 0; e < elements; ++e)
        atomicAdd(sum_address<d>(dQ_sum, fragment_row + r, warp) + lanes * e, dQ[r][0].x[e]);
    }
  }
}

__global__ void clear_dQ_sum(float* dQ_sum,  // (vectors, 4)
                             std::int64_t vectors) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < vectors) reinterpret_cast<float4*>(dQ_sum)[i] = {0, 0, 0, 0};
}

/// dQ = scale·dQ_sum, one warp per 16 rows.
template <int d, class Gradient>
__global__ void write_dQ(float* dQ_sum,              // (heads, Nq rounded up to 16, d), in fragments: see sum_address()
                         Gradient* __restrict__ dQ,  // (heads, Nq, d)
                         std::int64_t heads, std::int64_t Nq, float scale) {
  __shared__ __align__(32) Element scratch[4][16][32 + pad];
  const std::int64_t per_head = (Nq + 15) / 16;
  const int warp = threadIdx.x / lanes;
  const std::int64_t fragment_row = std::int64_t(blockIdx.x) * 4 + warp, first = fragment_row % per_head * 16;
  if (fragment_row >= heads * per_head) return;
  Accumulator sum[1][d / 16];
#pragma unroll
  for (int n = 0; n < d / 16; ++n) {
#pragma unroll
    for (int e = 0; e < elements; ++e) sum[0][n].x[e] = sum_address<d>(dQ_sum, fragment_row, n)[lanes * e];
  }
  write_gradient<d>(dQ + (fragment_row / per_head * Nq + first) * d, min(std::int64_t(16), Nq - first), 0, scale, sum,
                    scratch[warp], 0);
}

}  // namespace
}  // namespace ch06
