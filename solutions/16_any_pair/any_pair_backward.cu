// Chapter 16, the backward pass: the kernel as a sequence of the phases of gradient_phases.hpp and of chapter 15's
// gradient_tiles.hpp and gradient_sums.hpp, and the launches. It is chapter 9's kernel, but a K/V tile loops over the Q
// tiles of its lists, for all heads of Q that share its keys, as in chapter 14. any_pair_backward_bf16.cu compiles this
// file once more, for bf16.
//
// A thread has at most 255 registers: for sm_90 and fp16, ptxas of CUDA 13.0 spills up to 64 bytes (nvcc -Xptxas -v).
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; section 3.2 for the parts of thread blocks and
// warps. Test it: ./workbook test 16
#include "any_pair_backward.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "15_which_pairs/gradient_sums.hpp"
#include "common/cuda/dispatch.hpp"
#include "gradient_phases.hpp"
#include "lists.hpp"

namespace ch16 {
namespace {

constexpr bool is_half = std::is_same_v<Element, half>;

/// The K/V tile, and its head of K and V, that a thread block works on.
struct Task {
  int kv_head, kv_tile;
};
/// Task `index`, in the order in which thread blocks start. Eight heads advance together, in deterministic mode four.
/// The first K/V tiles come first: under many masks the most queries attend to them, and they add to dQ first.
__device__ __forceinline__ Task task_of(int index, int kv_heads, int kv_tiles, bool deterministic) {
  const int heads_per_group = deterministic ? 4 : 8;
  const int first_head = index / (heads_per_group * kv_tiles) * heads_per_group;
  const int group_heads = min(heads_per_group, kv_heads - first_head), index_in_group = index - first_head * kv_tiles;
  return {first_head + index_in_group % group_heads, index_in_group / group_heads};
}

/// This thread block's index in the order in which thread blocks start. All threads must call it, at the start.
template <class T>
__device__ __forceinline__ int take_ticket(GradientShared<T>& smem, int* ticket_counter) {
  if (threadIdx.x == 0) smem.ticket = atomicAdd(ticket_counter, 1);
  __syncthreads();  // the ticket is visible to all threads
  return smem.ticket;
}

/// The number of heads of K and V, B·Hkv; of heads of Q that share each of them; and of padded rows of each head of Q.
struct Sizes {
  int kv_heads, group, padded;
};

/// The rank of each block: dQ_rank().
__global__ void write_ranks(BlockTable table, int* __restrict__ ranks) {
  const std::int64_t block = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (block < std::int64_t(table.rows) * table.columns)
    ranks[block] = dQ_rank(table, int(block / table.columns), int(block % table.columns));
}

/// dK, dV and each K/V tile's contribution to dQ: one thread block per K/V tile of each head of K and V, so no other
/// block writes these rows of dK and dV. deterministic: the K/V tiles of a Q tile add to dQ_sum in a fixed order.
template <class T, bool deterministic, class MaskMod>
__global__ void __launch_bounds__(T::threads, 8 / T::warps)
    gradients(const Element* __restrict__ Q,         // (B·H, Nq, d)
              const Element* __restrict__ K,         // (B·Hkv, Nk, d)
              const Element* __restrict__ V,         // (B·Hkv, Nk, d)
              const Element* __restrict__ dO,        // (B·H, Nq, d)
              const float2* __restrict__ row_stats,  // (B·H, padded)
              float* dQ_sum,                         // (B·H, padded, d), see address_in_sum
              int* semaphores,           // if deterministic: the ticket counter, then (B·H, padded / Br, warps)
              const int* ranks,          // if deterministic: (Q tiles, K/V tiles)
              Element* __restrict__ dK,  // (B·Hkv, Nk, d)
              Element* __restrict__ dV,  // (B·Hkv, Nk, d)
              PairMask<MaskMod> mask, BlockLists lists, Sizes sizes, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<GradientShared<T>>();
  const int index = deterministic ? take_ticket(smem, semaphores) : int(blockIdx.x);
  const int q_tiles = (mask.Nq + T::Br - 1) / T::Br, kv_tiles = (mask.Nk + T::Bc - 1) / T::Bc;
  const Task task = task_of(index, sizes.kv_heads, kv_tiles, deterministic);
  const int first_key = task.kv_tile * T::Bc, keys = mask.Nk - first_key;    // the number of keys from there on
  const std::int64_t first_head = std::int64_t(task.kv_head) * sizes.group;  // of Q, counted over the batch
  const std::int64_t q_row = first_head * mask.Nq, kv_row = std::int64_t(task.kv_head) * mask.Nk + first_key;
  const std::int64_t padded_row = first_head * sizes.padded;
  Q += q_row * T::d, dO += q_row * T::d, row_stats += padded_row, dQ_sum += padded_row * T::d;
  K += kv_row * T::d, V += kv_row * T::d, dK += kv_row * T::d, dV += kv_row * T::d;
  BlockIterator iterator = block_iterator(lists, task.kv_tile, q_tiles);
  // This warp's team has 32 keys of the K/V tile, from `warp_key` on; the warp accumulates columns from `column` on.
  const int warp = threadIdx.x / 32, warp_key = warp / T::team * 32;
  const int team_rank = warp % T::team, column = team_rank * T::columns;
  if (deterministic) semaphores += 1 + padded_row / T::Br * T::warps + warp;  // this warp's semaphore of Q tile 0
  int previous = 0, current = 0, next = 0;  // the Q tiles of blocks n - 1, n and n + 1
  // The Q tile of block n uses buffer n % 2.
  const auto load_next = [&](int n) {  // commits a group, which is empty after the last block
    previous = current, current = next;
    if (n < iterator.count) {
      next = iterator.block(n);
      const std::int64_t first = std::int64_t(next) * T::Br;
      load_q_tile(smem, n % 2, Q + first * T::d, dO + first * T::d, row_stats + first, int(mask.Nq - first));
    }
    cp_async_commit_group();
  };
  // The K/V tiles of a Q tile add in increasing order. So a K/V tile waits only for earlier ones, whose thread blocks
  // have started earlier: there is no circular wait.
  const auto add_dQ_tile = [&](int n, int q_tile) {
    Semaphore<deterministic> semaphore;
    if constexpr (deterministic)
      semaphore = {semaphores + std::int64_t(q_tile) * T::warps, ranks[q_tile * kv_tiles + task.kv_tile]};
    add_dQ(dQ_sum + std::int64_t(q_tile) * T::Br * T::d, smem, n % 2, semaphore);
  };
  load_tile<T::threads>(smem.K, K, keys, threadIdx.x);    // (Bc, d)
  load_tile<T::threads>(smem.V, V, keys, threadIdx.x);    // (Bc, d)
  Result<T::columns / 8> dK_accumulator, dV_accumulator;  // (32, columns) per warp
  clear<T::columns / 8>(dK_accumulator), clear<T::columns / 8>(dV_accumulator);
  for (int head = 0; head < sizes.group; ++head) {  // the heads of Q that share K and V
    load_next(0);
    for (int n = 0; n < iterator.count; ++n) {
      cp_async_wait_group<0>();
      __syncthreads();  // Q tile n and dS of n - 1 are visible; no warp still reads the buffers overwritten below
      load_next(n + 1);
      if (n > 0 && warp < T::warps / 2) add_dQ_tile(n - 1, previous);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int q = (h ^ team_rank) * T::queries;
        Operands<T::parts> P, dS;
        if (T::team == 1 || h == 0)
          form_operands(P, dS, smem, n % 2, warp_key, q, scale * log2_e, mask, n < iterator.partial_count,
                        first_key + warp_key, current * T::Br + q);
        else
          load_team_operands(P, dS, smem, n % 2, warp_key, q);
        accumulate<T::parts>(dV_accumulator, P, smem.dO[n % 2], q, column);  // dV += Pᵀ dO, (32, columns)
        accumulate<T::parts>(dK_accumulator, dS, smem.Q[n % 2], q, column);  // dK += dSᵀ Q, (32, columns)
      }
      if (n > 0 && warp >= T::warps / 2) add_dQ_tile(n - 1, previous);
    }
    __syncthreads();  // dS of the last Q tile is visible; no warp still reads the Q tiles of this head
    if (iterator.count > 0) add_dQ_tile(iterator.count - 1, current);
    Q += std::int64_t(mask.Nq) * T::d, dO += std::int64_t(mask.Nq) * T::d;
    row_stats += sizes.padded, dQ_sum += std::int64_t(sizes.padded) * T::d;
    if (deterministic) semaphores += sizes.padded / T::Br * T::warps;
  }
  write_gradient<T>(dK + warp_key * T::d + column, dK_accumulator, scale, keys - warp_key);
  write_gradient<T>(dV + warp_key * T::d + column, dV_accumulator, 1, keys - warp_key);
}

/// Calls work with the Plan of these sizes; false if it is not built. Fewer are built for bf16.
template <class Work>
bool with_plan(std::int64_t d, const GradientTiles& tiles, Work work) {
  return workbook::cuda::with_head_dim(d, [&](auto d) {
    if constexpr (d == 128) {
      if (tiles == built_backward[1]) return work(Plan<d, 128, 64, 8>()), true;
      if (tiles == built_backward[2]) return work(Plan<d, 64, 32, 4>()), true;
    } else if constexpr (d == 64) {
      if (tiles == built_backward[0]) return work(Plan<d, 128, 64, 4>()), true;
      if constexpr (is_half)
        if (tiles == built_backward[3]) return work(Plan<d, 32, 32, 1>()), true;
    }
    return false;
  });
}

template <class T, bool deterministic, class MaskMod>
void start(const BackwardCall<Element>& call, const Scratch& scratch, const Sums& sums, const PairMask<MaskMod>& mask) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t count = std::int64_t(padded_rows(call.shape)), parts = count / 16 * (T::d / 8);
  const Sizes sizes{int(B * Hkv), int(H / Hkv), int(count / (B * H))};
  const BlockTable table = make_lists<T::Br, T::Bc>(mask, scratch, /*transposed=*/true);
  if constexpr (deterministic)
    launch(write_ranks, grid_of((std::int64_t(table.rows) * table.columns + 127) / 128, "⌈Nq/Br⌉·⌈Nk/Bc⌉"), dim3(128),
           0, table, sums.ranks);
  launch(prepare_rows<T::d>, grid_of((count * (T::d / 8) + 127) / 128, "B·H·Nq·d"), dim3(128), 0, call.O, call.dO,
         call.lse, nullptr, sums.row_stats, sums.dQ_sum, sums.semaphores, RowOfHead(), count, sizes.padded, int(Nq));
  launch(gradients<T, deterministic, MaskMod>, grid_of(std::int64_t(table.columns) * sizes.kv_heads, "B·Hkv·⌈Nk/Bc⌉"),
         dim3(T::threads), sizeof(GradientShared<T>), call.Q, call.K, call.V, call.dO, sums.row_stats, sums.dQ_sum,
         sums.semaphores, sums.ranks, call.dK, call.dV, mask, scratch.lists, sizes, call.scale);
  launch(write_dQ<T::d>, grid_of((parts + 7) / 8, "B·H·Nq·d"), dim3(256), 0, sums.dQ_sum, call.dQ, RowOfHead(), parts,
         sizes.padded, int(Nq), call.scale);
}

}  // namespace

template <>
void any_pair_backward(const BackwardCall<Element>& call, const Scratch& scratch, const Sums& sums,
                       const GradientTiles& tiles) {
  bool found = false;
  with_mask(call, call.starts, scratch.documents, [&](const auto& mask) {
    found = with_plan(call.shape.d, tiles, [&](auto plan) {
      using T = decltype(plan);
      if (sums.semaphores == nullptr) return start<T, false>(call, scratch, sums, mask);
      if constexpr (T::Bc > 32) return start<T, true>(call, scratch, sums, mask);
      throw std::invalid_argument("Bc = " + std::to_string(tiles.Bc) + ", Br = " + std::to_string(tiles.Br) +
                                  " is not built with semaphores");
    });
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

}  // namespace ch16
