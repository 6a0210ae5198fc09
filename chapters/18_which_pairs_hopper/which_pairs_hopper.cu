// Chapter 18, masks on Hopper: a consumer's main loop, the kernel and the launch. which_pairs_hopper_bf16.cu compiles
// this file again for bf16.
//
// Source: Shah et al. 2024 (FlashAttention-3), Algorithm 2; Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 18
#include "which_pairs_hopper.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "consumer.hpp"
#include "phases.hpp"

namespace ch18 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; in which_pairs_hopper_bf16.cu __nv_bfloat16
using workbook::cuda::setmaxnreg_dec, workbook::cuda::setmaxnreg_inc;

// Ping-pong schedule, as in chapter 11: a consumer issues its matmuls in an issue window, between ping_pong_wait and
// ping_pong_pass. Consumer i waits at named barrier 1 + i.
template <class T>
__device__ __forceinline__ void ping_pong_wait(int consumer) {
  barrier_sync(1 + consumer, 256);
}
template <class T>
__device__ __forceinline__ void ping_pong_pass(int consumer) {
  barrier_arrive(1 + (consumer + 1) % T::consumers, 256);
}
template <class T>
__device__ __forceinline__ void ping_pong_start(int consumer) {
  if (consumer == T::consumers - 1) ping_pong_pass<T>(consumer);
}

/// Skips `count` K/V tiles that this consumer's rows do not need, but keeps its issue windows. It still waits for each
/// tile: a wait distinguishes a phase only from the previous one, so a consumer must not be a whole round ahead of the
/// loads.
template <class T>
__device__ __forceinline__ void skip_tiles(Consumer<T>& consumer, int count) {
  for (; count > 0; --count) {
    consumer.wait_K();
    consumer.release_K();
    consumer.wait_V();
    consumer.release_V();
    ping_pong_wait<T>(consumer.index);
    ping_pong_pass<T>(consumer.index);
  }
}

/// Algorithm 2 (intra-warpgroup pipelining) for kv_tiles, of which there must be at least one: S of the next tile is
/// issued before O += P V of the current tile. The softmax of the next tile overlaps with O += P V.
template <class T>
__device__ __forceinline__ void attend(Consumer<T>& consumer) {
  int j = consumer.kv_tiles.last - 1;
  consumer.wait_K();
  ping_pong_wait<T>(consumer.index);
  consumer.start_S();
  ping_pong_pass<T>(consumer.index);
  wgmma_wait_group<0>(consumer.S);
  consumer.release_K();
  consumer.softmax(j);
  round_P(consumer.P, consumer.S);
  if (T::K_before_O && j > consumer.kv_tiles.first) consumer.wait_K();
  while (--j >= consumer.kv_tiles.first) {
    if (!T::K_before_O) consumer.wait_K();
    ping_pong_wait<T>(consumer.index);
    consumer.start_S();
    rescale_O(consumer.O, consumer.rescale, j + 1);
    consumer.wait_V();
    consumer.start_O();
    ping_pong_pass<T>(consumer.index);
    wgmma_wait_group<1>(consumer.S);  // S is complete, O is in flight
    consumer.release_K();
    consumer.softmax(j);  // overlaps with O += P V
    if (T::K_before_O && j > consumer.kv_tiles.first) consumer.wait_K();
    wgmma_wait_group<0>(consumer.O);
    consumer.release_V();
    round_P(consumer.P, consumer.S);  // O += P V has read the previous P
  }
  rescale_O(consumer.O, consumer.rescale, consumer.kv_tiles.first);
  consumer.wait_V(), consumer.start_O();
  wgmma_wait_group<0>(consumer.O);
  consumer.release_V();
}

/// All K/V tiles of the thread block, from the last to the first. Every consumer has one issue window per tile.
template <class T>
__device__ __forceinline__ void consume(Consumer<T>& consumer) {
  // TODO(18.5) Skip the tiles of block_tiles after kv_tiles, attend to kv_tiles, and skip the tiles before them. If
  // kv_tiles is empty, do not call attend, but release Q (about 4 lines).
  // BEGIN 18.5
  WORKBOOK_TODO(18.5);
  // END 18.5
}

/// A thread block has a producer warpgroup, of which one thread is active, and the consumer warpgroups. The grid has
/// at most one block per SM.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    attention_kernel(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
                     const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap O,
                     const __grid_constant__ Call call, const __grid_constant__ typename T::ScoreMod base_mod) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  if (threadIdx.x == 0) make_barriers<T>(smem);
  __syncthreads();                                                      // the barriers are initialised
  const int group = __shfl_sync(all_lanes, int(threadIdx.x) / 128, 0);  // warp-uniform for the compiler
  if (group == 0) {
    setmaxnreg_dec<T::producer_registers>();
    if (threadIdx.x == 0) produce_all<T>(smem, Q, K, V, call);
  } else {
    setmaxnreg_inc<T::consumer_registers>();
    Consumer<T> consumer(smem, base_mod, group - 1);
    ping_pong_start<T>(consumer.index);
    for (int iteration = 0;; ++iteration) {
      mbarrier_wait_parity(smem.Q_full, iteration % 2);
      __syncwarp();  // the compiler does not assume reconvergence after a wait
      const WorkTile& work = smem.work[iteration % 2];
      const int head = read_once(work.head), h = head % call.problem.heads;  // h: of the H heads of Q
      if (head < 0) break;
      consumer.begin(work);
      consumer.score_mod = base_mod.for_head(h, call.problem.heads);
      consumer.begin_with_sink(call.problem.sink == nullptr ? -INFINITY : call.problem.sink[h] * log2_e);
      consume(consumer);
      write_output<T>(smem.O[consumer.index], O, call, work, consumer.O, consumer.m, consumer.l, consumer.index);
    }
    if (threadIdx.x % 128 == 0) cp_async_bulk_wait_group_read<0>();  // shared memory is freed when the block exits
  }
}

template <class T>
void start(const ForwardCall<Element>& call, const typename T::ScoreMod& score_mod, int* tile_counter, int max_blocks) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t heads = B * H, q_tiles = tiles_per_head(call.mask, call.shape.Nq, T::Br);
  if (std::max(heads * call.shape.Nq, B * call.shape.Hkv * call.shape.Nk) >= std::numeric_limits<int>::max())
    throw std::invalid_argument("B·H·N: TMA's coordinates are int, and rows are numbered across all heads");
  dim3 grid = workbook::cuda::grid_of(q_tiles * heads, "B·H·⌈Nq/Br⌉");
  grid.x = std::min(int(grid.x), max_blocks);
  // A group includes all heads that share K and V. If Q tiles have different lengths, only the last group fills the
  // idle SMs at the end, so a group has many heads.
  const bool equal_lengths = call.mask.kind == workbook::Mask::none && call.starts == nullptr;
  const int group = int(H / Hkv), heads_per_group = std::max(equal_lengths ? 4 : 16, group);
  const Call arguments{call.lse,          tile_counter,
                       int(heads),        heads_per_group,
                       window_mask(call), Problem{int(q_tiles), int(H), group, call.sink, call.starts}};
  workbook::cuda::launch(attention_kernel<T>, grid, dim3(T::threads), sizeof(typename T::Shared),
                         make_tensor_map<T::d>(call.Q, heads, Nq, 64),
                         make_tensor_map<T::d>(call.K, B * Hkv, Nk, T::Bc),
                         make_tensor_map<T::d>(call.V, B * Hkv, Nk, T::Bc),
                         make_tensor_map<T::d>(call.O, heads, Nq, 64), arguments, score_mod);
}

/// Calls work with the Kernel for these sizes and this score modification, and returns its result.
template <class ScoreMod, class Do>
auto with_kernel(std::int64_t head_dim, const Tiles& tiles, Do work) {
  return workbook::cuda::with_sizes<built>(head_dim, tiles, [&](auto d, auto t) {
    if constexpr (is_built(d, {t.Br, t.Bc, t.warps})) return work(Kernel<Element, d, t.Bc, t.Br / 64, ScoreMod>());
    return decltype(work(Kernel<Element, 64, 64, 2, ScoreMod>()))();
  });
}

}  // namespace

// E is the element type for which this file is compiled.
template <class E>
void which_pairs(const ForwardCall<E>& call, const Tiles& tiles, int* tile_counter, int max_blocks) {
  if (!is_built(call.shape.d, tiles))
    throw std::invalid_argument("d = " + std::to_string(call.shape.d) + " with these tiles is not built");
  with_score_mod(call, [&](const auto& score_mod) {
    using ScoreMod = std::decay_t<decltype(score_mod)>;
    with_kernel<ScoreMod>(call.shape.d, tiles,
                          [&](auto kernel) { start<decltype(kernel)>(call, score_mod, tile_counter, max_blocks); });
  });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return with_kernel<Scaled>(d, tiles, [](auto kernel) { return sizeof(typename decltype(kernel)::Shared); });
}
template void which_pairs(const ForwardCall<Element>&, const Tiles&, int*, int);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch18
