// Chapter 6, the lab: the five formulas without tiles. A warp computes dQ of one query, or dK and dV of one key, and
// loops over all keys or all queries. A lane holds two columns of each row. The kernels are slow but short.
//
// See it: ./workbook trace 6 --operation lab --seq 32 --heads 1 --scale 4
// Test it: ./workbook test 6.9
#include "lab.hpp"

#include "common/cuda/dispatch.hpp"

namespace ch06 {
namespace {

constexpr int lanes = 32;  // d = 64: two columns each
constexpr float log2_e = 1.4426950408889634f;

/// Loads this lane's two elements of a row.
__device__ float2 load_pair(const half* __restrict__ matrix, std::int64_t row) {
  return __half22float2(reinterpret_cast<const half2*>(matrix)[row * lanes + threadIdx.x]);
}

/// The dot product of two rows, returned in all lanes.
__device__ float dot(float2 a, float2 b) {
  float sum = a.x * b.x + a.y * b.y;
  for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  return sum;
}

__device__ void accumulate(float2& sum, float factor, float2 x) {
  sum = {sum.x + factor * x.x, sum.y + factor * x.y};
}
__device__ void store(half* __restrict__ matrix, std::int64_t row, float factor, float2 x) {
  reinterpret_cast<half2*>(matrix)[row * lanes + threadIdx.x] = __floats2half2_rn(factor * x.x, factor * x.y);
}

/// One thread block per query of all heads, for dQ, or per key of all heads, for dK and dV.
template <bool row_is_query>
__global__ void __launch_bounds__(lanes)
    lab_kernel(const half* __restrict__ Q, const half* __restrict__ K,      // (heads, Nq, d), (heads, Nk, d)
               const half* __restrict__ V, const half* __restrict__ O,      // (heads, Nk, d), (heads, Nq, d)
               const half* __restrict__ dO, const float* __restrict__ lse,  // (heads, Nq, d), (heads, Nq)
               half* __restrict__ dQ, half* __restrict__ dK, half* __restrict__ dV, std::int64_t Nq, std::int64_t Nk,
               float scale) {
  const std::int64_t row = blockIdx.x, head = row / (row_is_query ? Nq : Nk), other_rows = row_is_query ? Nk : Nq;
  float2 sum_K{}, sum_Q{}, sum_dO{};  // Σ dS K of the query; Σ dS Q and Σ P dO of the key
  for (std::int64_t other = head * other_rows; other < (head + 1) * other_rows; ++other) {
    const std::int64_t i = row_is_query ? row : other, j = row_is_query ? other : row;
    const float2 q = load_pair(Q, i), k = load_pair(K, j), v = load_pair(V, j), dO_i = load_pair(dO, i);
    const float S = dot(q, k) * scale, dP = dot(dO_i, v), D = dot(dO_i, load_pair(O, i));
    // TODO(6.9) This is right for scores near 0 but not for all scores. Find out why, fix it, and remove the line with
    // WORKBOOK_FIX (about 1 line).
    // BEGIN 6.9
    WORKBOOK_FIX(6.9);
    const float P = workbook::cuda::exp2_ftz(S * log2_e) / workbook::cuda::exp2_ftz(lse[i] * log2_e);
    // END 6.9
    const float dS = P * (dP - D);
    if (!isfinite(dS)) workbook::cuda::note("dS is not finite", other);
    accumulate(sum_K, dS, k);
    accumulate(sum_Q, dS, q);
    accumulate(sum_dO, P, dO_i);
  }
  if (row_is_query) {
    store(dQ, row, scale, sum_K);
  } else {
    store(dK, row, scale, sum_Q);
    store(dV, row, 1, sum_dO);
  }
}

}  // namespace

void lab(const workbook::cuda::BackwardCall<half>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const auto start = [&](auto kernel, const dim3& grid) {
    workbook::cuda::launch(kernel, grid, dim3(lanes), 0, call.Q, call.K, call.V, call.O, call.dO, call.lse, call.dQ,
                           call.dK, call.dV, Nq, Nk, call.scale);
  };
  start(lab_kernel<true>, workbook::cuda::grid_of(B * H * Nq, "B·H·Nq"));
  start(lab_kernel<false>, workbook::cuda::grid_of(B * H * Nk, "B·H·Nk"));
}

}  // namespace ch06
