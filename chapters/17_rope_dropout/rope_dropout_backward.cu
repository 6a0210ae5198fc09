// Chapter 17, the backward pass, given: chapter 9's kernel, which rotates Q and K, and rotates dK and dQ back.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; section 3.2 for the parts of thread blocks and
// warps. Test it: ./workbook test 17
#include "rope_dropout_backward.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/cuda/dispatch.hpp"
#include "gradient_sums.hpp"

namespace ch17 {
namespace {

constexpr bool is_half = std::is_same_v<Element, half>;

/// The sizes of a call. causal: query i attends to the keys j <= i + (Nk - Nq) only.
struct Sizes {
  int heads, padded, Nq, Nk;  // padded: the padded rows of a head
  bool causal;
};

/// The K/V tile, and its head, that a thread block works on.
struct Task {
  int head, kv_tile;
};
/// Task `index`, in the order in which thread blocks start. Causal: eight heads advance together, and the first K/V
/// tiles, which most queries attend to, come first. Deterministic: four heads advance together, and the last K/V tiles
/// come first, since they add to dQ first.
__device__ __forceinline__ Task task_of(int index, int heads, int kv_tiles, bool causal, bool deterministic) {
  const int heads_per_group = deterministic ? 4 : causal ? 8 : 1;
  const int first_head = index / (heads_per_group * kv_tiles) * heads_per_group;
  const int group_heads = min(heads_per_group, heads - first_head), index_in_group = index - first_head * kv_tiles;
  const int j = index_in_group / group_heads;
  return {first_head + index_in_group % group_heads, deterministic ? kv_tiles - 1 - j : j};
}

/// The semaphore of this warp's piece of Q tile i, which is tile `q_tile` counted over all heads. The last K/V tile
/// that any query of the Q tile attends to has rank 0, and the first K/V tile has the last rank. With a causal mask,
/// thread blocks that start together reach the Q tile in this order, since later K/V tiles start at later Q tiles.
template <class T>
__device__ __forceinline__ Semaphore<true> semaphore_of(int* semaphores, int q_tile, int i, int kv_tile,
                                                        const Sizes& sizes) {
  const int last_key = min(sizes.Nk - 1, sizes.causal ? (i + 1) * T::Br - 1 + sizes.Nk - sizes.Nq : sizes.Nk - 1);
  return {semaphores + std::int64_t(q_tile) * T::warps + threadIdx.x / 32, last_key / T::Bc - kv_tile};
}

/// This thread block's index in the order in which they start: no block waits for one that has not started. All
/// threads call it first.
template <class T>
__device__ __forceinline__ int take_ticket(GradientShared<T>& smem, int* ticket_counter) {
  if (threadIdx.x == 0) smem.ticket = atomicAdd(ticket_counter, 1);
  __syncthreads();  // the ticket is visible to all threads
  return smem.ticket;
}

/// dK, dV and each K/V tile's contribution to dQ: one thread block per K/V tile of each head. deterministic: the thread
/// blocks of a head add to dQ_sum in a fixed order.
template <class T, bool deterministic>
__global__ void __launch_bounds__(T::threads, 8 / T::warps)
    gradients(const Element* __restrict__ Q,         // (heads, Nq, d)
              const Element* __restrict__ K,         // (heads, Nk, d)
              const Element* __restrict__ V,         // (heads, Nk, d)
              const Element* __restrict__ dO,        // (heads, Nq, d)
              const float2* __restrict__ row_stats,  // (heads, padded)
              float* dQ_sum,                         // (heads, padded, d), see address_in_sum
              int* semaphores,           // if deterministic: the ticket counter, then (heads, Q tiles, warps)
              Element* __restrict__ dK,  // (heads, Nk, d)
              Element* __restrict__ dV,  // (heads, Nk, d)
              const float2* __restrict__ Q_rotations,  // (Nq, d / 2), or nullptr
              const float2* __restrict__ K_rotations,  // (Nk, d / 2), or nullptr
              Sizes sizes, Dropout dropout, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<GradientShared<T>>();
  const auto [heads, padded, Nq, Nk, causal] = sizes;
  const int task_index = deterministic ? take_ticket(smem, semaphores) : int(blockIdx.x);
  const auto [head, kv_tile] = task_of(task_index, heads, (Nk + T::Bc - 1) / T::Bc, causal, deterministic);
  const int first_key = kv_tile * T::Bc, keys = Nk - first_key, diagonal = Nk - Nq - first_key;
  const int begin = first_q_tile<T>(diagonal, causal), q_tiles = (Nq + T::Br - 1) / T::Br;
  const std::int64_t K_row = std::int64_t(head) * Nk + first_key, Q_row = std::int64_t(head) * padded;
  Q += std::int64_t(head) * Nq * T::d, dO += std::int64_t(head) * Nq * T::d, row_stats += Q_row;
  const int warp = threadIdx.x / 32, warp_key = warp / T::team * 32, team_rank = warp % T::team;
  const auto load_next = [&](int i) {  // starts copying Q tile i, if it exists, and commits the group
    if (i < q_tiles) load_q_tile(smem, Q, dO, row_stats, i, Nq);
    cp_async_commit_group();
  };
  const auto add_dQ_tile = [&](int i) {  // adds this warp's piece of dQ of Q tile i, from smem.dS
    Semaphore<deterministic> semaphore;
    if constexpr (deterministic) semaphore = semaphore_of<T>(semaphores + 1, head * q_tiles + i, i, kv_tile, sizes);
    add_dQ(dQ_sum + (Q_row + i * T::Br) * T::d, smem, i % 2, semaphore);
  };
  load_tile<T::threads>(smem.K, K + K_row * T::d, keys, threadIdx.x);  // (Bc, d)
  load_tile<T::threads>(smem.V, V + K_row * T::d, keys, threadIdx.x);  // (Bc, d)
  load_next(begin);
  Result<T::columns / 8> dK_accumulator, dV_accumulator;  // (32, columns) per warp
  clear<T::columns / 8>(dK_accumulator), clear<T::columns / 8>(dV_accumulator);
  for (int i = begin; i < q_tiles; ++i) {
    cp_async_wait_group<0>();
    if (i == begin) rotate_tile<T::threads>(smem.K, K_rotations, first_key, keys, threadIdx.x);
    const int first_query = i * T::Br;
    rotate_tile<T::threads>(smem.Q[i % 2], Q_rotations, first_query, Nq - first_query, threadIdx.x);
    __syncthreads();  // Q tile i and dS of i - 1 are visible; no warp still reads the buffers overwritten below
    load_next(i + 1);
    if (i > begin && warp < T::warps / 2) add_dQ_tile(i - 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int q = (h ^ team_rank) * T::queries;
      Operands<T::parts> P, dS;
      if (T::team == 1 || h == 0)
        form_operands(P, dS, smem, i, warp_key, q, scale * log2_e, mask_of<T>(i, warp_key, q, keys, diagonal, causal),
                      dropout, {head, first_query + q, first_key + warp_key});
      else
        load_team_operands(P, dS, smem, i % 2, warp_key, q);
      accumulate<T>(dV_accumulator, P, smem.dO[i % 2], q, team_rank);  // dV += Pᵀ dO, (32, columns)
      accumulate<T>(dK_accumulator, dS, smem.Q[i % 2], q, team_rank);  // dK += dSᵀ Q, (32, columns)
    }
    if (i > begin && warp >= T::warps / 2) add_dQ_tile(i - 1);
  }
  if (begin < q_tiles) {
    __syncthreads();  // dS of the last Q tile is visible
    add_dQ_tile(q_tiles - 1);
  }
  if (K_rotations != nullptr)
    rotate_back<T>(dK_accumulator, K_rotations + std::int64_t(first_key + warp_key) * (T::d / 2), team_rank,
                   keys - warp_key);
  write_gradient<T>(dK + (K_row + warp_key) * T::d, dK_accumulator, scale, keys - warp_key, team_rank);
  write_gradient<T>(dV + (K_row + warp_key) * T::d, dV_accumulator, dropout.kept_scale, keys - warp_key, team_rank);
}

/// Calls work with the Plan of these sizes; false if it is not built. Fewer are built for bf16.
template <class Work>
bool with_plan(std::int64_t d, const GradientTiles& tiles, Work work) {
  return workbook::cuda::with_head_dim(d, [&](auto d) {
    if constexpr (d == 128) {
      if (tiles == built_backward[1]) return work(Plan<d, 128, 64, 8>()), true;
      if (tiles == built_backward[2]) return work(Plan<d, 64, 32, 4>()), true;
    } else {
      if (tiles == built_backward[0]) return work(Plan<d, 128, 64, 4>()), true;
      if constexpr (is_half)
        if (tiles == built_backward[3]) return work(Plan<d, 32, 32, 1>()), true;
    }
    return false;
  });
}

template <class T, bool deterministic>
void start(const BackwardCall<Element>& call, const Scratch& scratch) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t count = std::int64_t(padded_rows(call.shape)), pairs = count / 16 * (T::d / 16);
  const Sizes sizes{int(B * H), int(count / (B * H)), int(Nq), int(Nk), call.causal()};
  make_table<T::d>(call, scratch.table);
  const float2 *Q_rotations = nullptr, *K_rotations = nullptr;
  if (call.mask.rope) {
    Q_rotations = scratch.table + (table_rows(call.shape) - Nq) * (d / 2);
    K_rotations = scratch.table + (table_rows(call.shape) - Nk) * (d / 2);
  }
  launch(prepare_rows<T::d>, grid_of((count * (T::d / 8) + 127) / 128, "B·H·Nq·d"), dim3(128), 0, call.O, call.dO,
         call.lse, nullptr, scratch.row_stats, scratch.dQ_sum, scratch.semaphores, RowOfHead(), count, sizes.padded,
         sizes.Nq);
  launch(gradients<T, deterministic>, grid_of((Nk + T::Bc - 1) / T::Bc * B * H, "B·H·⌈Nk/Bc⌉"), dim3(T::threads),
         sizeof(GradientShared<T>), call.Q, call.K, call.V, call.dO, scratch.row_stats, scratch.dQ_sum,
         scratch.semaphores, call.dK, call.dV, Q_rotations, K_rotations, sizes, dropout_of(call.mask), call.scale);
  launch(write_dQ<T::d>, grid_of((pairs + 7) / 8, "B·H·Nq·d"), dim3(256), 0, scratch.dQ_sum, Q_rotations, call.dQ,
         pairs, sizes.padded, sizes.Nq, call.scale);
}

}  // namespace

template <>
void rope_dropout_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles) {
  const bool found = with_plan(call.shape.d, tiles, [&](auto plan) {
    using T = decltype(plan);
    if (scratch.semaphores == nullptr) return start<T, false>(call, scratch);
    if constexpr (T::Bc > 32) return start<T, true>(call, scratch);
    throw std::invalid_argument("Bc = " + std::to_string(tiles.Bc) + ", Br = " + std::to_string(tiles.Br) +
                                " is not built with semaphores");
  });
  if (!found)
    throw std::invalid_argument("Bc, Br, warps = " + std::to_string(tiles.Bc) + ", " + std::to_string(tiles.Br) + ", " +
                                std::to_string(tiles.warps) + " is not built");
}
template <>
std::size_t backward_shared_bytes<Element>(int d, const GradientTiles& tiles) {
  std::size_t bytes = 0;
  with_plan(d, tiles, [&](auto plan) { bytes = sizeof(GradientShared<decltype(plan)>); });
  return bytes;
}

}  // namespace ch17
