// Chapter 15, the backward pass: the kernel as a sequence of the phases of gradient_phases.hpp, gradient_tiles.hpp and
// gradient_sums.hpp, and the launches. It is chapter 9's kernel, but a K/V tile belongs to one sequence and loops over
// the Q tiles that attend to it, of all heads of Q that share its keys, as in chapter 14. which_pairs_backward_bf16.cu
// compiles this file once more, for bf16.
//
// Most of these kernels need all 255 registers of a thread: for sm_90 and fp16, ptxas of CUDA 13.0 spills up to 8 bytes
// without a softcap, up to 24 with one, and up to 96 in deterministic mode (nvcc -Xptxas -v).
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; section 3.2 for the parts of thread blocks and
// warps. Test it: ./workbook test 15
#include "which_pairs_backward.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/cuda/dispatch.hpp"
#include "gradient_phases.hpp"
#include "gradient_sums.hpp"
#include "problem.hpp"

namespace ch15 {
namespace {

constexpr bool is_half = std::is_same_v<Element, half>;

/// The K/V tile, and its head of K and V, that a thread block works on.
struct Task {
  int kv_head, kv_tile;
};
/// Task `index`, in the order in which thread blocks start. If the mask limits the keys after the diagonal (`limited`),
/// eight heads advance together, and the first K/V tiles, which most queries may attend to, come first. Deterministic:
/// four heads advance together, and the last K/V tiles come first, since they add to dQ first.
__device__ __forceinline__ Task task_of(int index, int kv_heads, int kv_tiles, bool limited, bool deterministic) {
  const int heads_per_group = deterministic ? 4 : limited ? 8 : 1;
  const int first_head = index / (heads_per_group * kv_tiles) * heads_per_group;
  const int group_heads = min(heads_per_group, kv_heads - first_head), index_in_group = index - first_head * kv_tiles;
  const int j = index_in_group / group_heads;
  return {first_head + index_in_group % group_heads, deterministic ? kv_tiles - 1 - j : j};
}

/// This thread block's index in the order in which thread blocks start. All threads must call it, at the start.
template <class T>
__device__ __forceinline__ int take_ticket(GradientShared<T>& smem, int* ticket_counter) {
  if (threadIdx.x == 0) smem.ticket = atomicAdd(ticket_counter, 1);
  __syncthreads();  // the ticket is visible to all threads
  return smem.ticket;
}

/// The number of heads of K and V, B·Hkv, and of padded rows of each head of Q.
struct Sizes {
  int kv_heads, padded;
};

/// dK, dV and each K/V tile's contribution to dQ: one thread block per K/V tile of each head of K and V, so no other
/// block writes these rows of dK and dV. deterministic: the K/V tiles of a Q tile add to dQ_sum in a fixed order.
template <class T, bool deterministic, class ScoreMod>
__global__ void __launch_bounds__(T::threads, 8 / T::warps)
    gradients(const Element* __restrict__ Q,         // (B·H, Nq, d)
              const Element* __restrict__ K,         // (B·Hkv, Nk, d)
              const Element* __restrict__ V,         // (B·Hkv, Nk, d)
              const Element* __restrict__ dO,        // (B·H, Nq, d)
              const float2* __restrict__ row_stats,  // (B·H, padded)
              float* dQ_sum,                         // (B·H, padded, d), see address_in_sum
              int* semaphores,           // if deterministic: the ticket counter, then (B·H, padded / Br, warps)
              Element* __restrict__ dK,  // (B·Hkv, Nk, d)
              Element* __restrict__ dV,  // (B·Hkv, Nk, d)
              WindowMask mask, ScoreMod base_mod, Problem problem, Sizes sizes, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<GradientShared<T>>();
  const int index = deterministic ? take_ticket(smem, semaphores) : int(blockIdx.x);
  const bool limited = mask.right < mask.Nk;
  const Task task = task_of(index, sizes.kv_heads, problem.tiles_per_head, limited, deterministic);
  const int first_head = task.kv_head * problem.group;  // of Q, counted over the batch
  const std::int64_t head_size = std::int64_t(mask.Nq) * T::d;
  std::int64_t q_row = std::int64_t(first_head) * mask.Nq, kv_row = std::int64_t(task.kv_head) * mask.Nk;
  const Sequence sequence = enter_sequence(mask, problem, task.kv_tile, T::Bc);  // `mask` is now the sequence's
  const int first_key = sequence.tile * T::Bc, keys = mask.Nk - first_key;       // the number of keys from there on
  q_row += sequence.first, kv_row += sequence.first + first_key;
  const std::int64_t padded_row =
      std::int64_t(first_head) * sizes.padded + padded_before(problem.starts, sequence.first);
  Q += q_row * T::d, dO += q_row * T::d, row_stats += padded_row, dQ_sum += padded_row * T::d;
  K += kv_row * T::d, V += kv_row * T::d, dK += kv_row * T::d, dV += kv_row * T::d;
  const Range q_tiles = mask.template q_tiles<T::Br>({first_key, min(mask.Nk, first_key + T::Bc)});
  // This warp's team has 32 keys of the K/V tile, from `warp_key` on; the warp accumulates columns from `column` on.
  const int warp = threadIdx.x / 32, warp_key = warp / T::team * 32;
  const int team_rank = warp % T::team, column = team_rank * T::columns;
  if (deterministic) semaphores += 1 + padded_row / T::Br * T::warps + warp;  // this warp's semaphore of Q tile 0
  // Q tile n uses buffer n % 2.
  const auto load_next = [&](int n) {  // commits a group, which is empty after the last Q tile
    if (n < q_tiles.last) {
      const std::int64_t first = std::int64_t(n) * T::Br;
      load_q_tile(smem, n % 2, Q + first * T::d, dO + first * T::d, row_stats + first, int(mask.Nq - first));
    }
    cp_async_commit_group();
  };
  // The K/V tiles that the Q tile attends to add from the last to the first: each waits for the semaphore value that
  // is its distance to the last one. All thread blocks loop over the heads and the Q tiles in the same order, so no
  // two blocks wait for each other.
  const auto add_dQ_tile = [&](int n) {
    Semaphore<deterministic> semaphore;
    if constexpr (deterministic) {
      const int last_key = mask.key_range((n + 1) * T::Br - 1).last - 1;
      semaphore = {semaphores + std::int64_t(n) * T::warps, last_key / T::Bc - sequence.tile};
    }
    add_dQ(dQ_sum + std::int64_t(n) * T::Br * T::d, smem, n % 2, semaphore);
  };
  load_tile<T::threads>(smem.K, K, keys, threadIdx.x);    // (Bc, d)
  load_tile<T::threads>(smem.V, V, keys, threadIdx.x);    // (Bc, d)
  Result<T::columns / 8> dK_accumulator, dV_accumulator;  // (32, columns) per warp
  clear<T::columns / 8>(dK_accumulator), clear<T::columns / 8>(dV_accumulator);
  for (int head = first_head; head < first_head + problem.group; ++head) {
    const ScoreMod score_mod = base_mod.for_head(head % problem.heads, problem.heads);
    load_next(q_tiles.first);
    for (int n = q_tiles.first; n < q_tiles.last; ++n) {
      cp_async_wait_group<0>();
      __syncthreads();  // Q tile n and dS of n - 1 are visible; no warp still reads the buffers overwritten below
      load_next(n + 1);
      if (n > q_tiles.first && warp < T::warps / 2) add_dQ_tile(n - 1);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int q = (h ^ team_rank) * T::queries;
        Operands<T::parts> P, dS;
        if (T::team == 1 || h == 0)
          form_operands(P, dS, smem, n % 2, warp_key, q, score_mod, mask, first_key + warp_key, n * T::Br + q);
        else
          load_team_operands(P, dS, smem, n % 2, warp_key, q);
        accumulate<T::parts>(dV_accumulator, P, smem.dO[n % 2], q, column);  // dV += Pᵀ dO, (32, columns)
        accumulate<T::parts>(dK_accumulator, dS, smem.Q[n % 2], q, column);  // dK += dSᵀ Q, (32, columns)
      }
      if (n > q_tiles.first && warp >= T::warps / 2) add_dQ_tile(n - 1);
    }
    __syncthreads();  // dS of the last Q tile is visible; no warp still reads the Q tiles of this head
    if (q_tiles.first < q_tiles.last) add_dQ_tile(q_tiles.last - 1);
    Q += head_size, dO += head_size;
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

template <class T, bool deterministic, class ScoreMod>
void start(const BackwardCall<Element>& call, const Scratch& scratch, const ScoreMod& score_mod) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t count = std::int64_t(padded_rows(call)), parts = count / 16 * (T::d / 8);
  const Problem problem{int(tiles_per_head(call.mask, Nk, T::Bc)), int(H), int(H / Hkv), call.sink, call.starts};
  const Sizes sizes{int(B * Hkv), int(count / (B * H))};
  const RowOfSequences row_of{call.starts, int(Nq)};
  launch(prepare_rows<T::d, RowOfSequences>, grid_of((count * (T::d / 8) + 127) / 128, "B·H·Nq·d"), dim3(128), 0,
         call.O, call.dO, call.lse, call.dlse, scratch.row_stats, scratch.dQ_sum, scratch.semaphores, row_of, count,
         sizes.padded, int(Nq));
  launch(gradients<T, deterministic, ScoreMod>,
         grid_of(std::int64_t(problem.tiles_per_head) * sizes.kv_heads, "B·Hkv·⌈Nk/Bc⌉"), dim3(T::threads),
         sizeof(GradientShared<T>), call.Q, call.K, call.V, call.dO, scratch.row_stats, scratch.dQ_sum,
         scratch.semaphores, call.dK, call.dV, window_mask(call), score_mod, problem, sizes, call.scale);
  launch(write_dQ<T::d, RowOfSequences>, grid_of((parts + 7) / 8, "B·H·Nq·d"), dim3(256), 0, scratch.dQ_sum, call.dQ,
         row_of, parts, sizes.padded, int(Nq), call.scale);
  if (call.dsink != nullptr)
    launch(sink_gradient, dim3(unsigned(H)), dim3(32), 0, scratch.row_stats, call.sink, call.dsink, int(B), int(H),
           sizes.padded);
}

}  // namespace

template <>
void which_pairs_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles) {
  bool found = false;
  with_score_mod(call, [&](const auto& score_mod) {
    found = with_plan(call.shape.d, tiles, [&](auto plan) {
      using T = decltype(plan);
      if (scratch.semaphores == nullptr) return start<T, false>(call, scratch, score_mod);
      if constexpr (T::Bc > 32) return start<T, true>(call, scratch, score_mod);
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

}  // namespace ch15
