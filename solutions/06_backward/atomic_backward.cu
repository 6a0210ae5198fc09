// Chapter 6, given as a contrast: dQ accumulated by atomics. dK and dV are backward.cuh's, by your functions.
//
// Source: Dao 2023, Algorithm 2.
// Test it: ./workbook test 6
#include "atomic_backward.hpp"

#include <cstdint>

#include "backward.cuh"

namespace ch06 {
namespace {

/// What is accumulated in dQ_sum is never read but by a lane that holds the same elements of the same fragment: so a
/// fragment of 16 x 16 lies there element by element, 32 lanes side by side, and nobody has to know which is which.
/// `row_block` counts 16 rows of Q over all heads, `column_block` 16 columns.
template <int d>
__device__ __forceinline__ float* place(float* dQ_sum, std::int64_t row_block, int column_block) {
  return dQ_sum + (row_block * (d / 16) + column_block) * 256 + threadIdx.x % 32;
}

/// dS = 0 for the keys that do not exist. For dK and dV it may be anything, and is infinite where exp2(-LSE) is; but
/// for dQ it is multiplied by rows of K, which are zeros there, and infinity times 0 is NaN.
template <class T>
__device__ __forceinline__ void clear_missing_keys(KeyShared<T>& smem, int keys) {
  for (int i = threadIdx.x; i < (T::owned - keys) * T::passing; i += T::threads)
    smem.dS[keys + i / T::passing][i % T::passing] = __float2half_rn(0);
}

/// dQ += dS K of the block's keys for one tile of queries: (passing, owned), (owned, d) -> (passing, d). Each warp has
/// 16 columns.
template <class T>
__device__ __forceinline__ void add_dQ(const KeyShared<T>& smem, float* dQ_sum, std::int64_t first_row_block,
                                       int row_blocks) {
  static_assert(16 * T::warps == T::d);
  constexpr int tall = T::passing / 16;
  const int warp = threadIdx.x / 32;
  Accumulator dQ[tall][1];
  clear(dQ);
#pragma unroll
  for (int key = 0; key < T::owned; key += 16) {
    Right<half> K;
    wmma::load_matrix_sync(K, &smem.K[key][16 * warp], T::d + pad);
#pragma unroll
    for (int r = 0; r < tall; ++r) {
      LeftTransposed<half> dS;
      wmma::load_matrix_sync(dS, &smem.dS[key][16 * r], T::passing + pad);
      wmma::mma_sync(dQ[r][0], dS, K, dQ[r][0]);
    }
  }
#pragma unroll
  for (int r = 0; r < tall; ++r) {
    if (r < row_blocks) {
#pragma unroll
      for (int e = 0; e < elements; ++e)
        atomicAdd(place<T::d>(dQ_sum, first_row_block + r, warp) + 32 * e, dQ[r][0].x[e]);
    }
  }
}

__global__ void clear_dQ_sum(float* dQ_sum, std::int64_t fours) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < fours) reinterpret_cast<float4*>(dQ_sum)[i] = {0, 0, 0, 0};
}

/// dQ = scale·dQ_sum, a warp for 16 rows.
template <int d, class Gradient>
__global__ void write_dQ(float* dQ_sum, Gradient* __restrict__ dQ, std::int64_t heads, std::int64_t Nq, float scale) {
  __shared__ __align__(32) half scratch[4][16][32 + pad];
  const std::int64_t row_blocks = (Nq + 15) / 16;
  const int warp = threadIdx.x / 32;
  const std::int64_t block = std::int64_t(blockIdx.x) * 4 + warp, first = block % row_blocks * 16;
  if (block >= heads * row_blocks) return;
  Accumulator sum[1][d / 16];
#pragma unroll
  for (int n = 0; n < d / 16; ++n) {
#pragma unroll
    for (int e = 0; e < elements; ++e) sum[0][n].x[e] = place<d>(dQ_sum, block, n)[32 * e];
  }
  write_gradient<d>(dQ + (block / row_blocks * Nq + first) * d, min(std::int64_t(16), Nq - first), 0, scale, sum,
                    scratch[warp], 0);
}

/// dK, dV, and this block's part of dQ. A block owns a tile of keys; the first tiles, which the most queries see, go
/// first.
template <class T, class Gradient>
__global__ void __launch_bounds__(T::threads, T::blocks)
    all_gradients(const half* __restrict__ Q, const half* __restrict__ K, const half* __restrict__ V,
                  const half* __restrict__ dO, const Row* __restrict__ rows, Gradient* __restrict__ dK,
                  Gradient* __restrict__ dV, float* dQ_sum, std::int64_t Nq, std::int64_t Nk, float scale,
                  bool causal) {
  auto& smem = dynamic_shared<KeyShared<T>>();
  const auto [head, tile] = place_of_block((Nk + T::owned - 1) / T::owned, causal);
  const std::int64_t first_key = tile * T::owned, K_row = head * Nk + first_key;
  const int keys = min(std::int64_t(T::owned), Nk - first_key);
  const Passing queries = rows_that_pass<T::passing>(true, first_key, keys, Nq, Nk, causal);
  Q += head * Nq * T::d, dO += head * Nq * T::d, rows += head * Nq;
  const auto load = [&](int stage, std::int64_t query) {
    const int count = min(std::int64_t(T::passing), Nq - query);
    load_tile<T::threads>(smem.Q[stage], Q + query * T::d, count);    // (passing, d)
    load_tile<T::threads>(smem.dO[stage], dO + query * T::d, count);  // (passing, d)
    load_rows(smem.rows[stage], rows + query, count);                 // (passing)
  };
  load_tile<T::threads>(smem.K, K + K_row * T::d, keys);  // (owned, d)
  load_tile<T::threads>(smem.V, V + K_row * T::d, keys);  // (owned, d)
  load(0, queries.begin);
  __pipeline_commit();
  write_index<T::threads>(smem.index);
  __syncthreads();  // the index is there
  const Map map = learn_map(smem.index);
  Accumulator dK_own[2][T::columns / 16], dV_own[2][T::columns / 16];  // (32, columns) per warp
  clear(dK_own), clear(dV_own);

  int stage = 0;
  for (std::int64_t query = queries.begin; query < queries.end; query += T::passing, stage ^= 1) {
    __pipeline_wait_prior(0);
    __syncthreads();  // this tile is there, and the last one has been used: the next may take its place
    if (query + T::passing < queries.end) load(stage ^ 1, query + T::passing);
    __pipeline_commit();
    const bool masked = query < queries.all_from || query + T::passing > queries.all_until;
    if (masked) note("masked tile", query / T::passing);
    const int reach = masked ? query + (Nk - Nq) - first_key : 0;
    accumulate_keys(smem, stage, map, scale * log2_e, masked, reach, dK_own, dV_own);
    __syncthreads();  // dS of all keys is there
    if (keys < T::owned) {
      clear_missing_keys(smem, keys);
      __syncthreads();  // what does not exist is 0
    }
    const int row_blocks = (min(std::int64_t(T::passing), Nq - query) + 15) / 16;
    add_dQ(smem, dQ_sum, head * ((Nq + 15) / 16) + query / 16, row_blocks);
  }
  meet<T>();  // P has been used: it makes room for what is written
  const int part = threadIdx.x / 32 % T::team, own = threadIdx.x / 32 / T::team * 32;
  write_gradient<T::d>(dK + (K_row + own) * T::d, keys - own, part * T::columns, scale, dK_own, smem.P,
                       own + 16 * part);
  write_gradient<T::d>(dV + (K_row + own) * T::d, keys - own, part * T::columns, 1, dV_own, smem.P, own + 16 * part);
}

template <int d>
using AtomicPlan = Plan<half, d, d / 16, d == 128 ? 2 : 1>;

}  // namespace

std::int64_t dQ_sum_size(const workbook::Shape& shape) {
  return shape.B * shape.H * ((shape.Nq + 15) / 16 * 16) * shape.d;
}

template <class Gradient>
void atomic_backward(const BackwardCall<half, Gradient>& call, float2* rows, float* dQ_sum) {
  const std::int64_t heads = call.shape.B * call.shape.H, fours = dQ_sum_size(call.shape) / 4;
  with_head_dim(call.shape.d, [&](auto d) {
    using T = AtomicPlan<d>;
    prepare_rows(call, rows);
    workbook::cuda::launch(clear_dQ_sum, blocks(1, fours, 256), dim3(256), 0, dQ_sum, fours);
    workbook::cuda::launch(all_gradients<T, Gradient>, blocks(heads, call.shape.Nk, T::owned), dim3(T::threads),
                           sizeof(KeyShared<T>), call.Q, call.K, call.V, call.dO, rows, call.dK, call.dV, dQ_sum,
                           call.shape.Nq, call.shape.Nk, call.scale, call.causal);
    workbook::cuda::launch(write_dQ<d, Gradient>, blocks(1, heads * ((call.shape.Nq + 15) / 16), 4), dim3(128), 0,
                           dQ_sum, call.dQ, heads, call.shape.Nq, call.scale);
  });
}
template void atomic_backward(const BackwardCall<half>&, float2*, float*);
template void atomic_backward(const BackwardCall<half, float>&, float2*, float*);

std::size_t atomic_shared_bytes(int d, const GradientTiles& tiles) {
  return with_head_dim(d, [&](auto d) {
    using T = AtomicPlan<d>;
    return tiles == GradientTiles{T::owned, T::passing, T::warps} ? sizeof(KeyShared<T>) : 0;
  });
}

}  // namespace ch06
