// Chapter 9, the backward pass in registers: the kernel as a sequence of the phases of phases.hpp, and the launches.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; section 3.2 for the parts of thread blocks and
// warps. Test it: ./workbook test 9
#include "backward_registers.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/cuda/dispatch.hpp"
#include "dQ_sum.hpp"
#include "phases.hpp"
#include "prepare_rows.hpp"

namespace ch09 {
namespace {

constexpr bool is_half = std::is_same_v<Element, half>;

/// The sizes of a call, and whether query i sees only the keys j <= i + (Nk - Nq).
struct Sizes {
  int heads, Nq, Nk;
  bool causal;
};

/// Which K/V tile of which head a thread block has.
struct Task {
  int head, kv_tile;
};
/// Task number `number`, in the order in which thread blocks begin. If causal, those of eight heads go together, and
/// of each the first K/V tiles first, which the most queries see. With turns those of four heads go together, the
/// last K/V tiles first, whose turn comes first.
__device__ __forceinline__ Task task_of(int number, int heads, int kv_tiles, bool causal, bool in_turns) {
  const int heads_at_once = in_turns ? 4 : causal ? 8 : 1;
  const int first_head = number / (heads_at_once * kv_tiles) * heads_at_once;
  const int count = min(heads_at_once, heads - first_head), within = number - first_head * kv_tiles;
  const int j = within / count;
  return {first_head + within % count, in_turns ? kv_tiles - 1 - j : j};
}

/// This warp's turn in Q tile i, the number `q_tile` over all heads: K/V tiles take turns from the last one
/// that any query of the Q tile sees to the first. That is the order in which they come to it when they begin at the
/// same time, the last ones at the diagonal.
template <class T>
__device__ __forceinline__ Turn<true> turn_of(int* turns, int q_tile, int i, int kv_tile, const Sizes& sizes) {
  const int last_seen = min(sizes.Nk - 1, sizes.causal ? (i + 1) * T::Br - 1 + sizes.Nk - sizes.Nq : sizes.Nk - 1);
  return {turns + std::int64_t(q_tile) * T::warps + threadIdx.x / 32, last_seen / T::Bc - kv_tile};
}

/// The number of this thread block in the order in which they begin, for all of its threads. It is the first barrier.
template <class T>
__device__ __forceinline__ int take_ticket(Shared<T>& smem, int* tickets) {
  if (threadIdx.x == 0) smem.ticket = atomicAdd(tickets, 1);
  __syncthreads();  // the ticket is there for all threads
  return smem.ticket;
}

/// dK, dV and each K/V tile's part of dQ. A thread block for each K/V tile of each head. in_turns: those of a
/// head add to dQ_sum one after the other.
template <class T, bool in_turns>
__global__ void __launch_bounds__(T::threads, 8 / T::warps)
    gradients(const Element* __restrict__ Q,    // (heads, Nq, d)
              const Element* __restrict__ K,    // (heads, Nk, d)
              const Element* __restrict__ V,    // (heads, Nk, d)
              const Element* __restrict__ dO,   // (heads, Nq, d)
              const float2* __restrict__ rows,  // (heads, padded(Nq))
              float* dQ_sum,                    // (heads, padded(Nq), d), see place_in_sum
              int* turns,                       // if in_turns: one for all, then (heads, Q tiles, warps)
              Element* __restrict__ dK,         // (heads, Nk, d)
              Element* __restrict__ dV,         // (heads, Nk, d)
              Sizes sizes, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<Shared<T>>();
  const auto [heads, Nq, Nk, causal] = sizes;
  const int number = in_turns ? take_ticket(smem, turns) : int(blockIdx.x);  // nobody waits for one that has not begun
  const auto [head, kv_tile] = task_of(number, heads, (Nk + T::Bc - 1) / T::Bc, causal, in_turns);
  const int first_key = kv_tile * T::Bc, keys = Nk - first_key, diagonal = Nk - Nq - first_key;
  const int begin = first_q_tile<T>(diagonal, causal), q_tiles = (Nq + T::Br - 1) / T::Br;
  const std::int64_t K_row = std::int64_t(head) * Nk + first_key, Q_row = std::int64_t(head) * padded(Nq);
  Q += std::int64_t(head) * Nq * T::d, dO += std::int64_t(head) * Nq * T::d, rows += Q_row;
  // This warp's team has the keys from `own` on. The warp is number `part` of it, and has the columns from `column` on.
  const int warp = threadIdx.x / 32, own = warp / T::team * 32, part = warp % T::team, column = part * T::columns;
  const auto load_next = [&](int i) {  // starts to copy Q tile i, if there is one, and ends the group
    if (i < q_tiles) load_q_tile(smem, Q, dO, rows, i, Nq);
    cp_async_commit_group();
  };
  [[maybe_unused]] const auto add_dQ_of = [&](int i) {  // this warp's piece of Q tile i's dQ, from smem.dS
    Turn<in_turns> turn;
    if constexpr (in_turns) turn = turn_of<T>(turns + 1, head * q_tiles + i, i, kv_tile, sizes);
    add_dQ(dQ_sum + (Q_row + i * T::Br) * T::d, smem, i % 2, turn);
  };
  load_tile<T::threads>(smem.K, K + K_row * T::d, keys);  // (Bc, d)
  load_tile<T::threads>(smem.V, V + K_row * T::d, keys);  // (Bc, d)
  load_next(begin);
  Result<T::columns / 8> dK_own, dV_own;  // (32, columns) per warp
  clear<T::columns / 8>(dK_own), clear<T::columns / 8>(dV_own);
  // TODO(9.9) The loop over the Q tiles from `begin` on, number i in places i % 2 (about 22 lines):
  //   wait until Q tile i is there for all threads, and start to copy the next one
  //   the first half of the warps adds dQ of Q tile i - 1, if this is not the first; the others do it last of all
  //   for both halves of the queries, its own one first: form P and dS; a team of two takes the other half's instead
  //     dV += Pᵀ dO and dK += dSᵀ Q, of this warp's columns
  //   after the loop, if there was any Q tile: wait for the last dS, and add the last dQ
  // BEGIN 9.9
  WORKBOOK_TODO(9.9);
  // END 9.9
  write_gradient<T>(dK + (K_row + own) * T::d + column, dK_own, scale, keys - own);
  write_gradient<T>(dV + (K_row + own) * T::d + column, dV_own, 1, keys - own);
}

/// Calls work with the Plan of these sizes; false if there is none. For bf16 there are fewer.
template <class Work>
bool with_plan(std::int64_t d, const GradientTiles& tiles, Work work) {
  return workbook::cuda::with_head_dim(d, [&](auto d) {
    if constexpr (d == 128) {
      if (tiles == built[1]) return work(Plan<d, 128, 64, 8>()), true;
      if (tiles == built[2]) return work(Plan<d, 64, 32, 4>()), true;
    } else {
      if (tiles == built[0]) return work(Plan<d, 128, 64, 4>()), true;
      if constexpr (is_half)
        if (tiles == built[3]) return work(Plan<d, 32, 32, 1>()), true;
    }
    return false;
  });
}

template <class T, bool in_turns>
void start(const BackwardCall<Element>& call, const float* dlse, const Scratch& scratch) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t count = std::int64_t(padded_rows(call.shape)), parts = count / 16 * (T::d / 8);
  const Sizes sizes{int(B * H), int(Nq), int(Nk), call.causal()};
  launch(prepare_rows<T::d>, grid_of((count * (T::d / 8) + 127) / 128, "B·H·Nq·d"), dim3(128), 0, call.O, call.dO,
         call.lse, dlse, scratch.rows, scratch.dQ_sum, scratch.turns, count, sizes.Nq);
  launch(gradients<T, in_turns>, grid_of((Nk + T::Bc - 1) / T::Bc * B * H, "B·H·⌈Nk/Bc⌉"), dim3(T::threads),
         sizeof(Shared<T>), call.Q, call.K, call.V, call.dO, scratch.rows, scratch.dQ_sum, scratch.turns, call.dK,
         call.dV, sizes, call.scale);
  launch(write_dQ<T::d>, grid_of((parts + 7) / 8, "B·H·Nq·d"), dim3(256), 0, scratch.dQ_sum, call.dQ, parts, sizes.Nq,
         call.scale);
}

}  // namespace

template <>
void backward(const BackwardCall<Element>& call, const float* dlse, const Scratch& scratch,
              const GradientTiles& tiles) {
  const bool found = with_plan(call.shape.d, tiles, [&](auto plan) {
    using T = decltype(plan);
    if (scratch.turns == nullptr) return start<T, false>(call, dlse, scratch);
    if constexpr (T::Bc > 32) return start<T, true>(call, dlse, scratch);
    throw std::invalid_argument("owned = " + std::to_string(tiles.owned) +
                                ", passing = " + std::to_string(tiles.passing) + " is not built with turns");
  });
  if (!found)
    throw std::invalid_argument("owned, passing, warps = " + std::to_string(tiles.owned) + ", " +
                                std::to_string(tiles.passing) + ", " + std::to_string(tiles.warps) + " is not built");
}
template <>
std::size_t shared_bytes<Element>(int d, const GradientTiles& tiles) {
  std::size_t bytes = 0;
  with_plan(d, tiles, [&](auto plan) { bytes = sizeof(Shared<decltype(plan)>); });
  return bytes;
}

}  // namespace ch09
