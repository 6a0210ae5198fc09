// Chapter 16, the backward pass: the kernel as a sequence of the phases of gradient_phases.hpp and scores.hpp, and the
// launches. It is chapter 9's kernel, in which a K/V tile goes through its list of Q tiles, for each head of Q
// that shares its keys. any_pair_backward_bf16.cu compiles this file once more, for bf16.
//
// A thread has no more than 255 registers: for sm_90 and fp16, ptxas of CUDA 13.0 spills up to 64 bytes (nvcc -Xptxas
// -v).
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; section 3.2 for the parts of thread blocks and
// warps. Test it: ./workbook test 16
#include "any_pair_backward.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/cuda/dispatch.hpp"
#include "gradient_sums.hpp"
#include "lists.hpp"

namespace ch16 {
namespace {

constexpr bool is_half = std::is_same_v<Element, half>;

/// Which K/V tile of which head of K and V a thread block has.
struct Task {
  int kv_head, kv_tile;
};
/// Task number `number`, in the order in which thread blocks begin: those of eight heads go together, with semaphores
/// of four, and of each the first K/V tiles first. Many masks let the most queries see these; and their turn comes
/// first.
__device__ __forceinline__ Task task_of(int number, int kv_heads, int kv_tiles, bool deterministic) {
  const int heads_at_once = deterministic ? 4 : 8;
  const int first_head = number / (heads_at_once * kv_tiles) * heads_at_once;
  const int count = min(heads_at_once, kv_heads - first_head), within = number - first_head * kv_tiles;
  return {first_head + within % count, within / count};
}

/// The number of this thread block in the order in which they begin, for all of its threads. It is the first barrier.
template <class T>
__device__ __forceinline__ int take_ticket(GradientShared<T>& smem, int* tickets) {
  if (threadIdx.x == 0) smem.ticket = atomicAdd(tickets, 1);
  __syncthreads();  // the ticket is there for all threads
  return smem.ticket;
}

/// B·Hkv heads of K and V, for `group` heads of Q each, and the padded rows of each of those.
struct Sizes {
  int kv_heads, group, padded;
};

/// Of each block, its turn: semaphore_of().
__global__ void write_turns(BlockTable table, int* __restrict__ turns) {
  const std::int64_t block = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (block < std::int64_t(table.rows) * table.columns)
    turns[block] = semaphore_of(table, int(block / table.columns), int(block % table.columns));
}

/// dK, dV and each K/V tile's part of dQ. A thread block for each K/V tile of each head of K and V: nobody
/// else writes these rows of dK and dV. deterministic: the K/V tiles of a Q tile add to dQ_sum one after the other.
template <class T, bool deterministic, class Predicate>
__global__ void __launch_bounds__(T::threads, 8 / T::warps)
    gradients(const Element* __restrict__ Q,    // (B·H, Nq, d)
              const Element* __restrict__ K,    // (B·Hkv, Nk, d)
              const Element* __restrict__ V,    // (B·Hkv, Nk, d)
              const Element* __restrict__ dO,   // (B·H, Nq, d)
              const float2* __restrict__ rows,  // (B·H, padded)
              float* dQ_sum,                    // (B·H, padded, d), see place_in_sum
              int* semaphores,                  // if deterministic: one for all, then (B·H, padded / Br, warps)
              const int* turns,                 // if deterministic: (Q tiles, K/V tiles)
              Element* __restrict__ dK,         // (B·Hkv, Nk, d)
              Element* __restrict__ dV,         // (B·Hkv, Nk, d)
              Pairs<Predicate> pairs, BlockLists lists, Sizes sizes, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<GradientShared<T>>();
  const int number = deterministic ? take_ticket(smem, semaphores) : int(blockIdx.x);
  const int q_tiles = (pairs.Nq + T::Br - 1) / T::Br, kv_tiles = (pairs.Nk + T::Bc - 1) / T::Bc;
  const Task task = task_of(number, sizes.kv_heads, kv_tiles, deterministic);
  const int first_key = task.kv_tile * T::Bc, keys = pairs.Nk - first_key;   // of the K/V tile; from there on
  const std::int64_t first_head = std::int64_t(task.kv_head) * sizes.group;  // of Q
  const std::int64_t query = first_head * pairs.Nq, key = std::int64_t(task.kv_head) * pairs.Nk + first_key;
  const std::int64_t padded = first_head * sizes.padded;
  Q += query * T::d, dO += query * T::d, rows += padded, dQ_sum += padded * T::d;
  K += key * T::d, V += key * T::d, dK += key * T::d, dV += key * T::d;
  Walk walk = walk_of(lists, task.kv_tile, q_tiles);
  // This warp's team has the keys from `own` on. The warp is number `part` of it, and has the columns from `column` on.
  const int warp = threadIdx.x / 32, own = warp / T::team * 32, part = warp % T::team, column = part * T::columns;
  if (deterministic) semaphores += 1 + padded / T::Br * T::warps + warp;  // this warp's, in Q tile 0
  int before = 0, now = 0, next = 0;  // Q tiles: block n - 1, n and n + 1 of the walk
  // What belongs to block n of the walk is in places n % 2.
  const auto load_next = [&](int n) {  // ends a group, empty after the last Q tile
    before = now, now = next;
    if (n < walk.blocks) {
      next = walk.block(n);
      const std::int64_t first = std::int64_t(next) * T::Br;
      load_q_tile(smem, n % 2, Q + first * T::d, dO + first * T::d, rows + first, int(pairs.Nq - first));
    }
    cp_async_commit_group();
  };
  // K/V tiles take semaphores in a Q tile, from the first one that any of its queries sees to the last. A column
  // block waits for none but those before it, whose thread blocks have begun before.
  const auto add_dQ_of = [&](int n, int q_tile) {
    Semaphore<deterministic> semaphore;
    if constexpr (deterministic)
      semaphore = {semaphores + std::int64_t(q_tile) * T::warps, turns[q_tile * kv_tiles + task.kv_tile]};
    add_dQ(dQ_sum + std::int64_t(q_tile) * T::Br * T::d, smem, n % 2, semaphore);
  };
  load_tile<T::threads>(smem.K, K, keys, threadIdx.x);  // (Bc, d)
  load_tile<T::threads>(smem.V, V, keys, threadIdx.x);  // (Bc, d)
  Result<T::columns / 8> dK_own, dV_own;                // (32, columns) per warp
  clear<T::columns / 8>(dK_own), clear<T::columns / 8>(dV_own);
  for (int nth = 0; nth < sizes.group; ++nth) {  // the heads of Q that share K and V
    load_next(0);
    for (int n = 0; n < walk.blocks; ++n) {
      cp_async_wait_group<0>();
      __syncthreads();  // the Q tile is there, and dS of the one before; nobody reads what is overwritten from here
      load_next(n + 1);
      if (n > 0 && warp < T::warps / 2) add_dQ_of(n - 1, before);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int q = (h ^ part) * T::queries;
        Operands<T::parts> P, dS;
        if (T::team == 1 || h == 0)
          form_operands(P, dS, smem, n % 2, own, q, scale * log2_e, pairs, n < walk.partials, first_key + own,
                        now * T::Br + q);
        else
          take_operands(P, dS, smem, n % 2, own, q);
        accumulate<T::parts>(dV_own, P, smem.dO[n % 2], q, column);  // dV += Pᵀ dO, (32, columns)
        accumulate<T::parts>(dK_own, dS, smem.Q[n % 2], q, column);  // dK += dSᵀ Q, (32, columns)
      }
      if (n > 0 && warp >= T::warps / 2) add_dQ_of(n - 1, before);
    }
    __syncthreads();  // dS of the last Q tile is there; nobody reads the Q tiles of this head any more
    if (walk.blocks > 0) add_dQ_of(walk.blocks - 1, now);
    Q += std::int64_t(pairs.Nq) * T::d, dO += std::int64_t(pairs.Nq) * T::d;
    rows += sizes.padded, dQ_sum += std::int64_t(sizes.padded) * T::d;
    if (deterministic) semaphores += sizes.padded / T::Br * T::warps;
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

template <class T, bool deterministic, class Predicate>
void start(const BackwardCall<Element>& call, const Scratch& scratch, const Sums& sums, const Pairs<Predicate>& pairs) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t count = std::int64_t(padded_rows(call.shape)), parts = count / 16 * (T::d / 8);
  const Sizes sizes{int(B * Hkv), int(H / Hkv), int(count / (B * H))};
  const BlockTable table = make_lists<T::Br, T::Bc>(pairs, scratch, /*of_columns=*/true);
  if constexpr (deterministic)
    launch(write_turns, grid_of((std::int64_t(table.rows) * table.columns + 127) / 128, "⌈Nq/Br⌉·⌈Nk/Bc⌉"), dim3(128),
           0, table, sums.turns);
  launch(prepare_rows<T::d>, grid_of((count * (T::d / 8) + 127) / 128, "B·H·Nq·d"), dim3(128), 0, call.O, call.dO,
         call.lse, sums.rows, sums.dQ_sum, sums.semaphores, count, sizes.padded, int(Nq));
  launch(gradients<T, deterministic, Predicate>, grid_of(std::int64_t(table.columns) * sizes.kv_heads, "B·Hkv·⌈Nk/Bc⌉"),
         dim3(T::threads), sizeof(GradientShared<T>), call.Q, call.K, call.V, call.dO, sums.rows, sums.dQ_sum,
         sums.semaphores, sums.turns, call.dK, call.dV, pairs, scratch.lists, sizes, call.scale);
  launch(write_dQ<T::d>, grid_of((parts + 7) / 8, "B·H·Nq·d"), dim3(256), 0, sums.dQ_sum, call.dQ, parts, sizes.padded,
         int(Nq), call.scale);
}

}  // namespace

template <>
void any_pair_backward(const BackwardCall<Element>& call, const Scratch& scratch, const Sums& sums,
                       const GradientTiles& tiles) {
  bool found = false;
  with_pairs(call, call.starts, scratch.documents, [&](const auto& pairs) {
    found = with_plan(call.shape.d, tiles, [&](auto plan) {
      using T = decltype(plan);
      if (sums.semaphores == nullptr) return start<T, false>(call, scratch, sums, pairs);
      if constexpr (T::Bc > 32) return start<T, true>(call, scratch, sums, pairs);
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
