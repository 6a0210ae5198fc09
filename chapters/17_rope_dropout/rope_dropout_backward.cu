// Chapter 17, the backward pass, given: the kernel as a sequence of the phases of gradient_phases.hpp, and the
// launches. It is chapter 9's kernel, in which rows of K and Q are rotated where they lie, and dK and dQ back.
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

/// The sizes of a call, the padded rows of a head, and whether query i sees only the keys j <= i + (Nk - Nq).
struct Sizes {
  int heads, padded, Nq, Nk;
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
__device__ __forceinline__ int take_ticket(GradientShared<T>& smem, int* tickets) {
  if (threadIdx.x == 0) smem.ticket = atomicAdd(tickets, 1);
  __syncthreads();  // the ticket is there for all threads
  return smem.ticket;
}

/// dK, dV and each K/V tile's part of dQ. A thread block for each K/V tile of each head. in_turns: those of a
/// head add to dQ_sum one after the other.
template <class T, bool in_turns>
__global__ void __launch_bounds__(T::threads, 8 / T::warps)
    gradients(const Element* __restrict__ Q,          // (heads, Nq, d)
              const Element* __restrict__ K,          // (heads, Nk, d)
              const Element* __restrict__ V,          // (heads, Nk, d)
              const Element* __restrict__ dO,         // (heads, Nq, d)
              const float2* __restrict__ rows,        // (heads, padded)
              float* dQ_sum,                          // (heads, padded, d), see place_in_sum
              int* turns,                             // if in_turns: one for all, then (heads, Q tiles, warps)
              Element* __restrict__ dK,               // (heads, Nk, d)
              Element* __restrict__ dV,               // (heads, Nk, d)
              const float2* __restrict__ of_queries,  // rotations (Nq, d / 2), or nullptr
              const float2* __restrict__ of_keys,     // (Nk, d / 2)
              Sizes sizes, Dropout dropout, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<GradientShared<T>>();
  const auto [heads, padded, Nq, Nk, causal] = sizes;
  const int number = in_turns ? take_ticket(smem, turns) : int(blockIdx.x);  // nobody waits for one that has not begun
  const auto [head, kv_tile] = task_of(number, heads, (Nk + T::Bc - 1) / T::Bc, causal, in_turns);
  const int first_key = kv_tile * T::Bc, keys = Nk - first_key, diagonal = Nk - Nq - first_key;
  const int begin = first_q_tile<T>(diagonal, causal), q_tiles = (Nq + T::Br - 1) / T::Br;
  const std::int64_t K_row = std::int64_t(head) * Nk + first_key, Q_row = std::int64_t(head) * padded;
  Q += std::int64_t(head) * Nq * T::d, dO += std::int64_t(head) * Nq * T::d, rows += Q_row;
  // This warp's team has the keys from `own` on, and the warp is number `part` of it.
  const int warp = threadIdx.x / 32, own = warp / T::team * 32, part = warp % T::team;
  const auto load_next = [&](int i) {  // starts to copy Q tile i, if there is one, and ends the group
    if (i < q_tiles) load_q_tile(smem, Q, dO, rows, i, Nq);
    cp_async_commit_group();
  };
  const auto add_dQ_of = [&](int i) {  // this warp's piece of Q tile i's dQ, from smem.dS
    Turn<in_turns> turn;
    if constexpr (in_turns) turn = turn_of<T>(turns + 1, head * q_tiles + i, i, kv_tile, sizes);
    add_dQ(dQ_sum + (Q_row + i * T::Br) * T::d, smem, i % 2, turn);
  };
  load_tile<T::threads>(smem.K, K + K_row * T::d, keys, threadIdx.x);  // (Bc, d)
  load_tile<T::threads>(smem.V, V + K_row * T::d, keys, threadIdx.x);  // (Bc, d)
  load_next(begin);
  Result<T::columns / 8> dK_own, dV_own;  // (32, columns) per warp
  clear<T::columns / 8>(dK_own), clear<T::columns / 8>(dV_own);
  for (int i = begin; i < q_tiles; ++i) {
    cp_async_wait_group<0>();
    if (i == begin) rotate_tile<T::threads>(smem.K, of_keys, first_key, keys, threadIdx.x);
    const int first_query = i * T::Br;
    rotate_tile<T::threads>(smem.Q[i % 2], of_queries, first_query, Nq - first_query, threadIdx.x);
    __syncthreads();  // Q tile i is there, and dS of i - 1; nobody reads what is overwritten from here on
    load_next(i + 1);
    if (i > begin && warp < T::warps / 2) add_dQ_of(i - 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int q = (h ^ part) * T::queries;
      Operands<T::parts> P, dS;
      if (T::team == 1 || h == 0)
        form_operands(P, dS, smem, i, own, q, scale * log2_e, mask_of<T>(i, own, q, keys, diagonal, causal), dropout,
                      {head, first_query + q, first_key + own});
      else
        take_operands(P, dS, smem, i, own, q);
      accumulate<T>(dV_own, P, smem.dO[i % 2], q, part);  // dV += Pᵀ dO, (32, columns)
      accumulate<T>(dK_own, dS, smem.Q[i % 2], q, part);  // dK += dSᵀ Q, (32, columns)
    }
    if (i > begin && warp >= T::warps / 2) add_dQ_of(i - 1);
  }
  if (begin < q_tiles) {
    __syncthreads();  // dS of the last Q tile is there
    add_dQ_of(q_tiles - 1);
  }
  if (of_keys != nullptr)
    rotate_back<T>(dK_own, of_keys + std::int64_t(first_key + own) * (T::d / 2), part, keys - own);
  write_gradient<T>(dK + (K_row + own) * T::d, dK_own, scale, keys - own, part);
  write_gradient<T>(dV + (K_row + own) * T::d, dV_own, dropout.kept_scale, keys - own, part);
}

/// Calls work with the Plan of these sizes; false if there is none. For bf16 there are fewer.
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

template <class T, bool in_turns>
void start(const BackwardCall<Element>& call, const Scratch& scratch) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t count = std::int64_t(padded_rows(call.shape)), pairs = count / 16 * (T::d / 16);
  const Sizes sizes{int(B * H), int(count / (B * H)), int(Nq), int(Nk), call.causal()};
  make_table<T::d>(call, scratch.table);
  const float2 *of_queries = nullptr, *of_keys = nullptr;
  if (call.mask.rope) {
    of_queries = scratch.table + (table_rows(call.shape) - Nq) * (d / 2);
    of_keys = scratch.table + (table_rows(call.shape) - Nk) * (d / 2);
  }
  launch(prepare_rows<T::d>, grid_of((count * (T::d / 8) + 127) / 128, "B·H·Nq·d"), dim3(128), 0, call.O, call.dO,
         call.lse, scratch.rows, scratch.dQ_sum, scratch.turns, count, sizes.padded, sizes.Nq);
  launch(gradients<T, in_turns>, grid_of((Nk + T::Bc - 1) / T::Bc * B * H, "B·H·⌈Nk/Bc⌉"), dim3(T::threads),
         sizeof(GradientShared<T>), call.Q, call.K, call.V, call.dO, scratch.rows, scratch.dQ_sum, scratch.turns,
         call.dK, call.dV, of_queries, of_keys, sizes, dropout_of(call.mask), call.scale);
  launch(write_dQ<T::d>, grid_of((pairs + 7) / 8, "B·H·Nq·d"), dim3(256), 0, scratch.dQ_sum, of_queries, call.dQ, pairs,
         sizes.padded, sizes.Nq, call.scale);
}

}  // namespace

template <>
void rope_dropout_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles) {
  const bool found = with_plan(call.shape.d, tiles, [&](auto plan) {
    using T = decltype(plan);
    if (scratch.turns == nullptr) return start<T, false>(call, scratch);
    if constexpr (T::Bc > 32) return start<T, true>(call, scratch);
    throw std::invalid_argument("owned = " + std::to_string(tiles.owned) +
                                ", passing = " + std::to_string(tiles.passing) + " is not built with turns");
  });
  if (!found)
    throw std::invalid_argument("owned, passing, warps = " + std::to_string(tiles.owned) + ", " +
                                std::to_string(tiles.passing) + ", " + std::to_string(tiles.warps) + " is not built");
}
template <>
std::size_t backward_shared_bytes<Element>(int d, const GradientTiles& tiles) {
  std::size_t bytes = 0;
  with_plan(d, tiles, [&](auto plan) { bytes = sizeof(GradientShared<decltype(plan)>); });
  return bytes;
}

}  // namespace ch17
