// Chapter 15, the backward pass: the kernel as a sequence of the phases of gradient_phases.hpp and score_gradients.hpp,
// and the launches. It is chapter 9's kernel, in which a K/V tile is of one sequence, and has the Q tiles that
// see it, of all heads of Q that share its keys, as in chapter 14. which_pairs_backward_bf16.cu compiles this file once
// more, for bf16.
//
// A thread has no more than 255 registers, and most of these kernels need all of them: for sm_90 and fp16, ptxas of
// CUDA 13.0 spills up to 8 bytes without a softcap, up to 24 with one, and up to 96 with turns (nvcc -Xptxas -v).
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; section 3.2 for the parts of thread blocks and
// warps. Test it: ./workbook test 15
#include "which_pairs_backward.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "asked_for.hpp"
#include "common/cuda/dispatch.hpp"
#include "gradient_sums.hpp"

namespace ch15 {
namespace {

constexpr bool is_half = std::is_same_v<Element, half>;

/// Which K/V tile of which head of K and V a thread block has.
struct Task {
  int kv_head, kv_tile;
};
/// Task number `number`, in the order in which thread blocks begin. Where a mask ends at the right (`early`), those of
/// eight heads go together, and of each the first K/V tiles first, which the most queries may see. With turns those
/// of four heads go together, the last K/V tiles first, whose turn comes first.
__device__ __forceinline__ Task task_of(int number, int kv_heads, int kv_tiles, bool early, bool in_turns) {
  const int heads_at_once = in_turns ? 4 : early ? 8 : 1;
  const int first_head = number / (heads_at_once * kv_tiles) * heads_at_once;
  const int count = min(heads_at_once, kv_heads - first_head), within = number - first_head * kv_tiles;
  const int j = within / count;
  return {first_head + within % count, in_turns ? kv_tiles - 1 - j : j};
}

/// The number of this thread block in the order in which they begin, for all of its threads. It is the first barrier.
template <class T>
__device__ __forceinline__ int take_ticket(GradientShared<T>& smem, int* tickets) {
  if (threadIdx.x == 0) smem.ticket = atomicAdd(tickets, 1);
  __syncthreads();  // the ticket is there for all threads
  return smem.ticket;
}

/// B·Hkv heads of K and V, and the padded rows of each head of Q.
struct Sizes {
  int kv_heads, padded;
};

/// dK, dV and each K/V tile's part of dQ. A thread block for each K/V tile of each head of K and V: nobody else
/// writes these rows of dK and dV. in_turns: the K/V tiles of a Q tile add to dQ_sum one after the other.
template <class T, bool in_turns, class Change>
__global__ void __launch_bounds__(T::threads, 8 / T::warps)
    gradients(const Element* __restrict__ Q,    // (B·H, Nq, d)
              const Element* __restrict__ K,    // (B·Hkv, Nk, d)
              const Element* __restrict__ V,    // (B·Hkv, Nk, d)
              const Element* __restrict__ dO,   // (B·H, Nq, d)
              const float2* __restrict__ rows,  // (B·H, padded)
              float* dQ_sum,                    // (B·H, padded, d), see place_in_sum
              int* turns,                       // if in_turns: one for all, then (B·H, padded / Br, warps)
              Element* __restrict__ dK,         // (B·Hkv, Nk, d)
              Element* __restrict__ dV,         // (B·Hkv, Nk, d)
              SeenKeys seen, Change any_head, Given given, Sizes sizes, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<GradientShared<T>>();
  const int number = in_turns ? take_ticket(smem, turns) : int(blockIdx.x);
  const Task task = task_of(number, sizes.kv_heads, given.blocks, seen.right < seen.Nk, in_turns);
  const int first_head = task.kv_head * given.group;  // of Q, counted through the batch
  const std::int64_t head_size = std::int64_t(seen.Nq) * T::d;
  std::int64_t query = std::int64_t(first_head) * seen.Nq, key = std::int64_t(task.kv_head) * seen.Nk;
  const Sequence sequence = enter_sequence(seen, given, task.kv_tile, T::Bc);  // from here on there is no other
  const int first_key = sequence.tile * T::Bc, keys = seen.Nk - first_key;  // of the K/V tile; from there on
  query += sequence.first, key += sequence.first + first_key;
  const std::int64_t padded = std::int64_t(first_head) * sizes.padded + padded_before(given.starts, sequence.first);
  Q += query * T::d, dO += query * T::d, rows += padded, dQ_sum += padded * T::d;
  K += key * T::d, V += key * T::d, dK += key * T::d, dV += key * T::d;
  const Range walk = seen.template q_tiles<T::Br>({first_key, min(seen.Nk, first_key + T::Bc)});
  // This warp's team has the keys from `own` on. The warp is number `part` of it, and has the columns from `column` on.
  const int warp = threadIdx.x / 32, own = warp / T::team * 32, part = warp % T::team, column = part * T::columns;
  if (in_turns) turns += 1 + padded / T::Br * T::warps + warp;  // this warp's, in Q tile 0
  // What belongs to Q tile n is in places n % 2.
  const auto load_next = [&](int n) {  // ends a group, empty after the last Q tile
    if (n < walk.last) {
      const std::int64_t first = std::int64_t(n) * T::Br;
      load_q_tile(smem, n % 2, Q + first * T::d, dO + first * T::d, rows + first, int(seen.Nq - first));
    }
    cp_async_commit_group();
  };
  // K/V tiles take turns in a Q tile, from the last one that any of its queries sees to the first. All of them
  // walk in the same order, so that nobody waits for one that waits for him.
  const auto add_dQ_of = [&](int n) {
    Turn<in_turns> turn;
    if constexpr (in_turns) {
      const int last_seen = seen.of((n + 1) * T::Br - 1).last - 1;
      turn = {turns + std::int64_t(n) * T::warps, last_seen / T::Bc - sequence.tile};
    }
    add_dQ(dQ_sum + std::int64_t(n) * T::Br * T::d, smem, n % 2, turn);
  };
  load_tile<T::threads>(smem.K, K, keys, threadIdx.x);  // (Bc, d)
  load_tile<T::threads>(smem.V, V, keys, threadIdx.x);  // (Bc, d)
  Result<T::columns / 8> dK_own, dV_own;                // (32, columns) per warp
  clear<T::columns / 8>(dK_own), clear<T::columns / 8>(dV_own);
  for (int head = first_head; head < first_head + given.group; ++head) {
    const Change change = any_head.of_head(head % given.heads, given.heads);
    load_next(walk.first);
    for (int n = walk.first; n < walk.last; ++n) {
      cp_async_wait_group<0>();
      __syncthreads();  // the Q tile is there, and dS of the one before; nobody reads what is overwritten from here
      load_next(n + 1);
      if (n > walk.first && warp < T::warps / 2) add_dQ_of(n - 1);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int q = (h ^ part) * T::queries;
        Operands<T::parts> P, dS;
        if (T::team == 1 || h == 0)
          form_operands(P, dS, smem, n % 2, own, q, change, seen, first_key + own, n * T::Br + q);
        else
          take_operands(P, dS, smem, n % 2, own, q);
        accumulate<T::parts>(dV_own, P, smem.dO[n % 2], q, column);  // dV += Pᵀ dO, (32, columns)
        accumulate<T::parts>(dK_own, dS, smem.Q[n % 2], q, column);  // dK += dSᵀ Q, (32, columns)
      }
      if (n > walk.first && warp >= T::warps / 2) add_dQ_of(n - 1);
    }
    __syncthreads();  // dS of the last Q tile is there; nobody reads the Q tiles of this head any more
    if (walk.first < walk.last) add_dQ_of(walk.last - 1);
    Q += head_size, dO += head_size;
    rows += sizes.padded, dQ_sum += std::int64_t(sizes.padded) * T::d;
    if (in_turns) turns += sizes.padded / T::Br * T::warps;
  }
  write_gradient<T>(dK + own * T::d + column, dK_own, scale, keys - own);
  write_gradient<T>(dV + own * T::d + column, dV_own, 1, keys - own);
}

/// Calls work with the Plan of these sizes; false if there is none. For bf16 there are fewer.
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

template <class T, bool in_turns, class Change>
void start(const BackwardCall<Element>& call, const Scratch& scratch, const Change& change) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t count = std::int64_t(padded_rows(call)), parts = count / 16 * (T::d / 8);
  const Given given{int(blocks_of_head(call.mask, Nk, T::Bc)), int(H), int(H / Hkv), call.sink, call.starts};
  const Sizes sizes{int(B * Hkv), int(count / (B * H))};
  launch(prepare_rows<T::d>, grid_of((count * (T::d / 8) + 127) / 128, "B·H·Nq·d"), dim3(128), 0, call.O, call.dO,
         call.lse, scratch.rows, scratch.dQ_sum, scratch.turns, call.starts, count, sizes.padded, int(Nq));
  launch(gradients<T, in_turns, Change>, grid_of(std::int64_t(given.blocks) * sizes.kv_heads, "B·Hkv·⌈Nk/Bc⌉"),
         dim3(T::threads), sizeof(GradientShared<T>), call.Q, call.K, call.V, call.dO, scratch.rows, scratch.dQ_sum,
         scratch.turns, call.dK, call.dV, seen_keys(call), change, given, sizes, call.scale);
  launch(write_dQ<T::d>, grid_of((parts + 7) / 8, "B·H·Nq·d"), dim3(256), 0, scratch.dQ_sum, call.dQ, call.starts,
         parts, sizes.padded, int(Nq), call.scale);
  if (call.dsink != nullptr)
    launch(sink_gradient, dim3(unsigned(H)), dim3(32), 0, scratch.rows, call.sink, call.dsink, int(B), int(H),
           sizes.padded);
}

}  // namespace

template <>
void which_pairs_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles) {
  bool found = false;
  with_change(call, [&](const auto& change) {
    found = with_plan(call.shape.d, tiles, [&](auto plan) {
      using T = decltype(plan);
      if (scratch.turns == nullptr) return start<T, false>(call, scratch, change);
      if constexpr (T::Bc > 32) return start<T, true>(call, scratch, change);
      throw std::invalid_argument("owned = " + std::to_string(tiles.owned) +
                                  ", passing = " + std::to_string(tiles.passing) + " is not built with turns");
    });
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

}  // namespace ch15
