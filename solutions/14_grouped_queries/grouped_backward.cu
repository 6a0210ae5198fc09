// Chapter 14, the backward pass of grouped-query attention: the kernel as a sequence of the phases of
// gradient_phases.hpp, and the launches. It is chapter 9's kernel, but a K/V tile loops over the Q tiles of all heads
// of a group. grouped_backward_bf16.cu compiles this file once more, for bf16.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; section 3.2 for the parts of thread blocks and
// warps. Test it: ./workbook test 14
#include "grouped_backward.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/cuda/dispatch.hpp"
#include "gradient_sums.hpp"
#include "group_tiles.hpp"

namespace ch14 {
namespace {

constexpr bool is_half = std::is_same_v<Element, half>;

/// The sizes of a call: kv_heads = B·Hkv, and `group` heads of Q per head of K and V. causal: query i attends to the
/// keys j <= i + (Nk - Nq) only.
struct Sizes {
  int kv_heads, group, Nq, Nk;
  bool causal;
};

/// The K/V tile, and its head of K and V, that a thread block works on.
struct Task {
  int kv_head, kv_tile;
};
/// Task `index`, in the order in which thread blocks start. Causal: eight heads of K and V advance together, and the
/// first K/V tiles, which most queries attend to, come first. Deterministic: four heads advance together, and the last
/// K/V tiles come first, since they add to dQ first.
__device__ __forceinline__ Task task_of(int index, int kv_heads, int kv_tiles, bool causal, bool deterministic) {
  const int heads_together = deterministic ? 4 : causal ? 8 : 1;
  const int first_head = index / (heads_together * kv_tiles) * heads_together;
  const int heads = min(heads_together, kv_heads - first_head), offset = index - first_head * kv_tiles;
  const int j = offset / heads;
  return {first_head + offset % heads, deterministic ? kv_tiles - 1 - j : j};
}

/// The semaphore of this warp's piece of Q tile i of a head, which is tile `q_tile` counted over all heads of Q. The
/// K/V tiles of a head add in descending order. The last one that any query of the Q tile attends to adds at semaphore
/// value 0. A K/V tile waits only for later K/V tiles of its head, whose thread blocks have started earlier: there is
/// no deadlock.
template <class T>
__device__ __forceinline__ Semaphore<true> semaphore_of(int* semaphores, std::int64_t q_tile, int i, int kv_tile,
                                                        const Sizes& sizes) {
  const int last_key = min(sizes.Nk - 1, sizes.causal ? (i + 1) * T::Br - 1 + sizes.Nk - sizes.Nq : sizes.Nk - 1);
  return {semaphores + q_tile * T::warps + threadIdx.x / 32, last_key / T::Bc - kv_tile};
}

/// This thread block's index in the order in which thread blocks start. All threads must call it, at the start.
template <class T>
__device__ __forceinline__ int take_ticket(GradientShared<T>& smem, int* ticket_counter) {
  if (threadIdx.x == 0) smem.ticket = atomicAdd(ticket_counter, 1);
  __syncthreads();  // the ticket is visible to all threads
  return smem.ticket;
}

/// dK, dV and each K/V tile's contribution to dQ: one thread block per K/V tile of each head of K and V, so no other
/// block writes these rows of dK and dV. deterministic: the K/V tiles of a head add to dQ_sum in a fixed order.
template <class T, bool deterministic>
__global__ void __launch_bounds__(T::threads, 8 / T::warps)
    gradients(const Element* __restrict__ Q,         // (B·H, Nq, d)
              const Element* __restrict__ K,         // (B·Hkv, Nk, d)
              const Element* __restrict__ V,         // (B·Hkv, Nk, d)
              const Element* __restrict__ dO,        // (B·H, Nq, d)
              const float2* __restrict__ row_stats,  // (B·H, padded(Nq))
              float* dQ_sum,                         // (B·H, padded(Nq), d), see address_in_sum
              int* semaphores,           // if deterministic: the ticket counter, then (B·H, Q tiles, warps)
              Element* __restrict__ dK,  // (B·Hkv, Nk, d)
              Element* __restrict__ dV,  // (B·Hkv, Nk, d)
              Sizes sizes, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<GradientShared<T>>();
  const auto [kv_heads, group, Nq, Nk, causal] = sizes;
  const int task_index =
      deterministic ? take_ticket(smem, semaphores) : int(blockIdx.x);  // no block waits for one that has not started
  const auto [kv_head, kv_tile] = task_of(task_index, kv_heads, (Nk + T::Bc - 1) / T::Bc, causal, deterministic);
  const int first_key = kv_tile * T::Bc, keys = Nk - first_key, diagonal = Nk - Nq - first_key;
  const int begin = first_q_tile<T>(diagonal, causal), q_tiles = (Nq + T::Br - 1) / T::Br;
  // TODO(14.7) Advance K, V, dK and dV to the first row of the K/V tile, with a 64-bit offset. Then the Q tiles that
  // this block loops over: the heads of Q that read kv_head, and from which Q tile on (about 4 lines).
  // STUB: const GroupTiles group_tiles = [&]() -> GroupTiles { WORKBOOK_TODO(14.7); }();
  // BEGIN 14.7
  const std::int64_t first_row = std::int64_t(kv_head) * Nk + first_key;
  K += first_row * T::d, V += first_row * T::d, dK += first_row * T::d, dV += first_row * T::d;
  const GroupTiles group_tiles{kv_head * group, group, begin, q_tiles};
  // END 14.7
  // This warp's team has 32 keys of the K/V tile, from `warp_key` on; the warp accumulates columns from `column` on.
  const int warp = threadIdx.x / 32, warp_key = warp / T::team * 32;
  const int team_rank = warp % T::team, column = team_rank * T::columns;
  // The data of a step is in buffer step % 2. semaphores[0] is the ticket counter: the Q tiles' semaphores follow it.
  //
  // TODO(14.9) load_step starts to copy the Q tile of a step. add_dQ_tile adds this warp's piece of its dQ to dQ_sum.
  // step_mask returns its mask, for this warp's keys and the queries from q on (about 13 lines).
  // STUB: const auto load_step = [&](int) { WORKBOOK_TODO(14.9); };
  // STUB: const auto add_dQ_tile = [&](int) { WORKBOOK_TODO(14.9); };
  // STUB: const auto step_mask = [&](int, int) -> Mask { WORKBOOK_TODO(14.9); };
  // BEGIN 14.9
  const auto load_step = [&](int step) {
    const auto [head, i] = group_tiles.at(step);
    const std::int64_t query = std::int64_t(head) * Nq + i * T::Br;
    load_q_tile(smem, step % 2, Q + query * T::d, dO + query * T::d,
                row_stats + std::int64_t(head) * padded(Nq) + i * T::Br, Nq - i * T::Br);
  };
  const auto add_dQ_tile = [&](int step) {
    const auto [head, i] = group_tiles.at(step);
    Semaphore<deterministic> semaphore;
    if constexpr (deterministic)
      semaphore = semaphore_of<T>(semaphores + 1, std::int64_t(head) * q_tiles + i, i, kv_tile, sizes);
    add_dQ(dQ_sum + (std::int64_t(head) * padded(Nq) + i * T::Br) * T::d, smem, step % 2, semaphore);
  };
  const auto step_mask = [&](int step, int q) {
    return mask_of<T>(group_tiles.at(step).index, warp_key, q, keys, diagonal, causal);
  };
  // END 14.9
  const int steps = group_tiles.steps();
  const auto load_next = [&](int step) {  // commits a group, which is empty after the last step
    if (step < steps) load_step(step);
    cp_async_commit_group();
  };
  load_tile<T::threads>(smem.K, K, keys);  // (Bc, d)
  load_tile<T::threads>(smem.V, V, keys);  // (Bc, d)
  load_next(0);
  Result<T::columns / 8> dK_accumulator, dV_accumulator;  // (32, columns) per warp
  clear<T::columns / 8>(dK_accumulator), clear<T::columns / 8>(dV_accumulator);
  for (int step = 0; step < steps; ++step) {
    cp_async_wait_group<0>();
    __syncthreads();  // the step's Q tile and the last dS are visible; no warp still reads what is overwritten below
    load_next(step + 1);
    if (step > 0 && warp < T::warps / 2) add_dQ_tile(step - 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int q = (h ^ team_rank) * T::queries;
      Operands<T::parts> P, dS;
      if (T::team == 1 || h == 0)
        form_operands(P, dS, smem, step % 2, warp_key, q, scale * log2_e, step_mask(step, q));
      else
        load_team_operands(P, dS, smem, step % 2, warp_key, q);
      accumulate<T::parts>(dV_accumulator, P, smem.dO[step % 2], q, column);  // dV += Pᵀ dO, (32, columns)
      accumulate<T::parts>(dK_accumulator, dS, smem.Q[step % 2], q, column);  // dK += dSᵀ Q, (32, columns)
    }
    if (step > 0 && warp >= T::warps / 2) add_dQ_tile(step - 1);
  }
  if (steps > 0) {
    __syncthreads();  // dS of the last step is visible
    add_dQ_tile(steps - 1);
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

template <class T, bool deterministic>
void start(const BackwardCall<Element>& call, const Scratch& scratch) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t count = std::int64_t(padded_rows(call.shape)), parts = count / 16 * (T::d / 8);
  const Sizes sizes{int(B * Hkv), int(H / Hkv), int(Nq), int(Nk), call.causal()};
  launch(prepare_rows<T::d>, grid_of((count * (T::d / 8) + 127) / 128, "B·H·Nq·d"), dim3(128), 0, call.O, call.dO,
         call.lse, scratch.row_stats, scratch.dQ_sum, scratch.semaphores, count, sizes.Nq);
  launch(gradients<T, deterministic>, grid_of((Nk + T::Bc - 1) / T::Bc * B * Hkv, "B·Hkv·⌈Nk/Bc⌉"), dim3(T::threads),
         sizeof(GradientShared<T>), call.Q, call.K, call.V, call.dO, scratch.row_stats, scratch.dQ_sum,
         scratch.semaphores, call.dK, call.dV, sizes, call.scale);
  launch(write_dQ<T::d>, grid_of((parts + 7) / 8, "B·H·Nq·d"), dim3(256), 0, scratch.dQ_sum, call.dQ, parts, sizes.Nq,
         call.scale);
}

}  // namespace

template <>
void grouped_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles) {
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

}  // namespace ch14
