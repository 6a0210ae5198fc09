// Chapter 22: the kernels of the backward pass. Chapter 9's, with sums of dK and dV in device memory.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2.
#pragma once

#include <cstdint>

#include "09_backward_registers/dQ_sum.hpp"
#include "09_backward_registers/phases.hpp"
#include "09_backward_registers/prepare_rows.hpp"

namespace ch22 {
namespace {

/// The memory of a rank that a step uses. Q and dO: (heads, queries, d); row_stats and dQ_sum as in chapter 9; K, V,
/// dK_sum and dV_sum of the source: (heads of K, keys, d).
template <class Element>
struct GradientTensors {
  const Element *Q, *dO;
  const float2* row_stats;
  float* dQ_sum;
  const Element *K, *V;
  float *dK_sum, *dV_sum;
};

/// The sizes of a launch, as in the forward pass. first_query is a multiple of 64. A step that starts the sums
/// overwrites them.
struct GradientSizes {
  int queries, first_query, keys_per_head, keys, group;
  bool causal, starts;
};

/// sum += C·scale, or sum = C·scale: the first `rows` of 32 rows, and T::columns columns.
template <class T>
__device__ __forceinline__ void add_gradient(float* sum, const ch09::Result<T::columns / 8>& C, float scale, int rows,
                                             bool starts) {
  const int lane = threadIdx.x % 32;
  // TODO(22.4) Each lane has two adjacent columns of each row: add them as a float2, unless the sum starts here (about
  // 12 lines).
  // BEGIN 22.4
  WORKBOOK_TODO(22.4);
  // END 22.4
}

/// Adds the contributions of the rank's queries to dK and dV of a shard, and of the shard's keys to dQ: one thread
/// block per K/V tile of each head of K, which loops over the Q tiles of all heads of Q that share it.
template <class Element, class T>
__global__ void __launch_bounds__(T::threads, 8 / T::warps)
    gradient_step(GradientTensors<Element> rank, GradientSizes sizes, int kv_tiles, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<ch09::Shared<T>>();
  const int kv_head = blockIdx.x / kv_tiles, kv_tile = blockIdx.x % kv_tiles;
  const int first_key = kv_tile * T::Bc, keys = sizes.keys - first_key;
  const int diagonal = sizes.keys - sizes.queries - first_key;
  const int begin = max(ch09::first_q_tile<T>(diagonal, sizes.causal), sizes.first_query / T::Br);
  const int per_head = max(0, (sizes.queries + T::Br - 1) / T::Br - begin), q_tiles = per_head * sizes.group;
  const std::int64_t K_row = std::int64_t(kv_head) * sizes.keys_per_head + first_key;
  const int warp = threadIdx.x / 32, warp_key = warp / T::team * 32, team_rank = warp % T::team;
  const int column = team_rank * T::columns;
  // Tile t of the loop is Q tile tile_of(t) of a head of Q, and uses buffer t % 2.
  const auto head_of = [&](int t) { return std::int64_t(kv_head) * sizes.group + t / per_head; };
  const auto tile_of = [&](int t) { return begin + t % per_head; };
  const auto load_next = [&](int t) {
    if (t < q_tiles) {
      const int shift = (tile_of(t) - t) * T::Br;  // load_q_tile goes to row t·Br
      const std::int64_t Q_row = head_of(t) * sizes.queries + shift;
      ch09::load_q_tile(smem, rank.Q + Q_row * T::d, rank.dO + Q_row * T::d,
                        rank.row_stats + head_of(t) * ch09::padded(sizes.queries) + shift, t, sizes.queries - shift);
    }
    ch09::cp_async_commit_group();
  };
  const auto add_dQ_tile = [&](int t) {
    const std::int64_t row = head_of(t) * ch09::padded(sizes.queries) + tile_of(t) * T::Br;
    ch09::add_dQ(rank.dQ_sum + row * T::d, smem, t % 2, ch09::Semaphore<false>());
  };
  ch09::load_tile<T::threads>(smem.K, rank.K + K_row * T::d, keys);
  ch09::load_tile<T::threads>(smem.V, rank.V + K_row * T::d, keys);
  load_next(0);
  ch09::Result<T::columns / 8> dK, dV;  // (32, columns) per warp, from `column` on
  ch09::clear<T::columns / 8>(dK), ch09::clear<T::columns / 8>(dV);
  for (int t = 0; t < q_tiles; ++t) {
    ch09::cp_async_wait_group<0>();
    __syncthreads();  // Q tile t and dS of t - 1 are visible; no warp still reads the buffers overwritten below
    load_next(t + 1);
    if (t > 0 && warp < T::warps / 2) add_dQ_tile(t - 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int q = (h ^ team_rank) * T::queries;
      ch09::Operands<T::parts> P, dS;
      if (T::team == 1 || h == 0)
        ch09::form_operands(P, dS, smem, t, warp_key, q, scale * ch09::log2_e,
                            ch09::mask_of<T>(tile_of(t), warp_key, q, keys, diagonal, sizes.causal));
      else
        ch09::load_team_operands(P, dS, smem, t, warp_key, q);
      ch09::accumulate<T::parts>(dV, P, smem.dO[t % 2], q, column);  // dV += Pᵀ dO, (32, columns)
      ch09::accumulate<T::parts>(dK, dS, smem.Q[t % 2], q, column);  // dK += dSᵀ Q, (32, columns)
    }
    if (t > 0 && warp >= T::warps / 2) add_dQ_tile(t - 1);
  }
  if (q_tiles > 0) {
    __syncthreads();  // dS of the last Q tile is visible
    add_dQ_tile(q_tiles - 1);
  }
  const std::int64_t at = (K_row + warp_key) * T::d + column;
  add_gradient<T>(rank.dK_sum + at, dK, scale, keys - warp_key, sizes.starts);
  add_gradient<T>(rank.dV_sum + at, dV, 1, keys - warp_key, sizes.starts);
}

/// Rounds pairs of sums: dK and dV when they are complete.
template <class Element>
__global__ void round_sums(const float2* __restrict__ sums, std::uint32_t* __restrict__ rounded, std::int64_t pairs) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < pairs) rounded[i] = workbook::cuda::cvt_rn_x2<Element>(sums[i].x, sums[i].y);
}

}  // namespace
}  // namespace ch22
