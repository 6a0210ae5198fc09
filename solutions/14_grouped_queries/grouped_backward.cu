// Chapter 14, the backward pass of grouped queries: the kernel as a sequence of the phases of gradient_phases.hpp, and
// the launches. It is chapter 9's kernel, in which a block has the Q tiles of several heads of Q.
// grouped_backward_bf16.cu compiles this file once more, for bf16.
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
#include "walk.hpp"

namespace ch14 {
namespace {

constexpr bool is_half = std::is_same_v<Element, half>;

/// The sizes of a call: B·Hkv heads of K and V, `group` heads of Q for each of them; and whether query i sees only the
/// keys j <= i + (Nk - Nq).
struct Sizes {
  int kv_heads, group, Nq, Nk;
  bool causal;
};

/// Which K/V tile of which head of K and V a thread block has.
struct Task {
  int kv_head, kv_tile;
};
/// Task number `number`, in the order in which thread blocks begin. If causal, those of eight heads go together, and
/// of each the first K/V tiles first, which the most queries see. With semaphores those of four heads go together, the
/// last K/V tiles first, whose turn comes first.
__device__ __forceinline__ Task task_of(int number, int kv_heads, int kv_tiles, bool causal, bool deterministic) {
  const int heads_at_once = deterministic ? 4 : causal ? 8 : 1;
  const int first_head = number / (heads_at_once * kv_tiles) * heads_at_once;
  const int count = min(heads_at_once, kv_heads - first_head), within = number - first_head * kv_tiles;
  const int j = within / count;
  return {first_head + within % count, deterministic ? kv_tiles - 1 - j : j};
}

/// This warp's turn in a Q tile, the number i of its head: K/V tiles take semaphores from the last one that any query
/// of the Q tile sees to the first. All of them walk through their heads in the same order, so that nobody waits for
/// one that waits for him.
template <class T>
__device__ __forceinline__ Semaphore<true> semaphore_of(int* semaphores, std::int64_t q_tile, int i, int kv_tile,
                                                        const Sizes& sizes) {
  const int last_seen = min(sizes.Nk - 1, sizes.causal ? (i + 1) * T::Br - 1 + sizes.Nk - sizes.Nq : sizes.Nk - 1);
  return {semaphores + q_tile * T::warps + threadIdx.x / 32, last_seen / T::Bc - kv_tile};
}

/// The number of this thread block in the order in which they begin, for all of its threads. It is the first barrier.
template <class T>
__device__ __forceinline__ int take_ticket(GradientShared<T>& smem, int* tickets) {
  if (threadIdx.x == 0) smem.ticket = atomicAdd(tickets, 1);
  __syncthreads();  // the ticket is there for all threads
  return smem.ticket;
}

/// dK, dV and each K/V tile's part of dQ. A thread block for each K/V tile of each head of K and V: nobody else
/// writes these rows of dK and dV. deterministic: the K/V tiles of a head add to dQ_sum one after the other.
template <class T, bool deterministic>
__global__ void __launch_bounds__(T::threads, 8 / T::warps)
    gradients(const Element* __restrict__ Q,    // (B·H, Nq, d)
              const Element* __restrict__ K,    // (B·Hkv, Nk, d)
              const Element* __restrict__ V,    // (B·Hkv, Nk, d)
              const Element* __restrict__ dO,   // (B·H, Nq, d)
              const float2* __restrict__ rows,  // (B·H, padded(Nq))
              float* dQ_sum,                    // (B·H, padded(Nq), d), see place_in_sum
              int* semaphores,                  // if deterministic: one for all, then (B·H, Q tiles, warps)
              Element* __restrict__ dK,         // (B·Hkv, Nk, d)
              Element* __restrict__ dV,         // (B·Hkv, Nk, d)
              Sizes sizes, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<GradientShared<T>>();
  const auto [kv_heads, group, Nq, Nk, causal] = sizes;
  const int number =
      deterministic ? take_ticket(smem, semaphores) : int(blockIdx.x);  // nobody waits for one that has not begun
  const auto [kv_head, kv_tile] = task_of(number, kv_heads, (Nk + T::Bc - 1) / T::Bc, causal, deterministic);
  const int first_key = kv_tile * T::Bc, keys = Nk - first_key, diagonal = Nk - Nq - first_key;
  const int begin = first_q_tile<T>(diagonal, causal), q_tiles = (Nq + T::Br - 1) / T::Br;
  // TODO(14.7) Move K, V, dK and dV to the first row of this block, in 64 bits. Then the walk: which heads of Q pass
  // by, and from which Q tile on (about 4 lines).
  // STUB: const Walk walk = [&]() -> Walk { WORKBOOK_TODO(14.7); }();
  // BEGIN 14.7
  const std::int64_t first_row = std::int64_t(kv_head) * Nk + first_key;
  K += first_row * T::d, V += first_row * T::d, dK += first_row * T::d, dV += first_row * T::d;
  const Walk walk{kv_head * group, group, begin, q_tiles};
  // END 14.7
  // This warp's team has the keys from `own` on. The warp is number `part` of it, and has the columns from `column` on.
  const int warp = threadIdx.x / 32, own = warp / T::team * 32, part = warp % T::team, column = part * T::columns;
  // What belongs to step n of the walk is in places n % 2.
  //
  // TODO(14.9) Start to copy the Q tile of step n. Add this warp's piece of its dQ to the sum. And its mask, for
  // this warp's keys and the queries from q on (about 13 lines).
  // STUB: const auto load = [&](int) { WORKBOOK_TODO(14.9); };
  // STUB: const auto add_dQ_of = [&](int) { WORKBOOK_TODO(14.9); };
  // STUB: const auto mask_at = [&](int, int) -> Mask { WORKBOOK_TODO(14.9); };
  // BEGIN 14.9
  const auto load = [&](int n) {
    const auto [head, i] = walk.at(n);
    const std::int64_t query = std::int64_t(head) * Nq + i * T::Br;
    load_q_tile(smem, n % 2, Q + query * T::d, dO + query * T::d, rows + std::int64_t(head) * padded(Nq) + i * T::Br,
                Nq - i * T::Br);
  };
  const auto add_dQ_of = [&](int n) {
    const auto [head, i] = walk.at(n);
    Semaphore<deterministic> semaphore;
    if constexpr (deterministic)
      semaphore = semaphore_of<T>(semaphores + 1, std::int64_t(head) * q_tiles + i, i, kv_tile, sizes);
    add_dQ(dQ_sum + (std::int64_t(head) * padded(Nq) + i * T::Br) * T::d, smem, n % 2, semaphore);
  };
  const auto mask_at = [&](int n, int q) { return mask_of<T>(walk.at(n).number, own, q, keys, diagonal, causal); };
  // END 14.9
  const int steps = walk.steps();
  const auto load_next = [&](int n) {  // ends a group, empty after the last step
    if (n < steps) load(n);
    cp_async_commit_group();
  };
  load_tile<T::threads>(smem.K, K, keys);  // (Bc, d)
  load_tile<T::threads>(smem.V, V, keys);  // (Bc, d)
  load_next(0);
  Result<T::columns / 8> dK_own, dV_own;  // (32, columns) per warp
  clear<T::columns / 8>(dK_own), clear<T::columns / 8>(dV_own);
  for (int n = 0; n < steps; ++n) {
    cp_async_wait_group<0>();
    __syncthreads();  // the Q tile is there, and dS of the one before; nobody reads what is overwritten from here on
    load_next(n + 1);
    if (n > 0 && warp < T::warps / 2) add_dQ_of(n - 1);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int q = (h ^ part) * T::queries;
      Operands<T::parts> P, dS;
      if (T::team == 1 || h == 0)
        form_operands(P, dS, smem, n % 2, own, q, scale * log2_e, mask_at(n, q));
      else
        take_operands(P, dS, smem, n % 2, own, q);
      accumulate<T::parts>(dV_own, P, smem.dO[n % 2], q, column);  // dV += Pᵀ dO, (32, columns)
      accumulate<T::parts>(dK_own, dS, smem.Q[n % 2], q, column);  // dK += dSᵀ Q, (32, columns)
    }
    if (n > 0 && warp >= T::warps / 2) add_dQ_of(n - 1);
  }
  if (steps > 0) {
    __syncthreads();  // dS of the last Q tile is there
    add_dQ_of(steps - 1);
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

template <class T, bool deterministic>
void start(const BackwardCall<Element>& call, const Scratch& scratch) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t count = std::int64_t(padded_rows(call.shape)), parts = count / 16 * (T::d / 8);
  const Sizes sizes{int(B * Hkv), int(H / Hkv), int(Nq), int(Nk), call.causal()};
  launch(prepare_rows<T::d>, grid_of((count * (T::d / 8) + 127) / 128, "B·H·Nq·d"), dim3(128), 0, call.O, call.dO,
         call.lse, scratch.rows, scratch.dQ_sum, scratch.semaphores, count, sizes.Nq);
  launch(gradients<T, deterministic>, grid_of((Nk + T::Bc - 1) / T::Bc * B * Hkv, "B·Hkv·⌈Nk/Bc⌉"), dim3(T::threads),
         sizeof(GradientShared<T>), call.Q, call.K, call.V, call.dO, scratch.rows, scratch.dQ_sum, scratch.semaphores,
         call.dK, call.dV, sizes, call.scale);
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
