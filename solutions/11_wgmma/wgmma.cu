// Chapter 11, wgmma: a consumer's main loop, in order and overlapped; the kernel; and the launch. wgmma_bf16.cu
// compiles this file again for bf16.
//
// Source: Shah et al. 2024 (FlashAttention-3), Algorithm 1 (consume_in_order) and Algorithm 2 (consume_overlapped).
// Test it: ./workbook test 11
#include "wgmma.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "consumer.hpp"
#include "phases.hpp"

namespace ch11 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; in wgmma_bf16.cu __nv_bfloat16
using workbook::cuda::setmaxnreg_dec, workbook::cuda::setmaxnreg_inc;

/// Algorithm 1: each matmul is waited for as soon as it has been issued.
template <class T>
__device__ __forceinline__ void consume_in_order(Consumer<T>& consumer) {
  // TODO(11.6) For each K/V tile j, from the last to the first: S = Q K_jᵀ; softmax; P; O += P V_j. Wait for a tile
  // before a matmul reads it, and for a matmul before its registers are accessed. Release a tile as soon as it has been
  // read (about 13 lines).
  // BEGIN 11.6
  for (int j = consumer.kv_tiles - 1; j >= 0; --j) {
    consumer.wait_K();
    consumer.start_S();
    wgmma_wait_group<0>(consumer.S);
    consumer.release_K();
    consumer.softmax(j);
    round_P(consumer.P, consumer.S);
    rescale_O(consumer.O, consumer.rescale, j);
    consumer.wait_V();
    consumer.start_O();
    wgmma_wait_group<0>(consumer.O);
    consumer.release_V();
  }
  // END 11.6
}

// Ping-pong schedule: the consumers issue their matmuls one after the other, in a cycle. Each consumer does so in an
// issue window, which starts with ping_pong_wait and ends with ping_pong_pass. Consumer i waits at named barrier 1 + i.
// 256 threads participate in it: the 128 of consumer i wait, and the 128 of the previous consumer arrive and continue.
// No consumer precedes the first window of consumer 0, so ping_pong_start has one consumer arrive there.
//
// TODO(11.8) Three functions, called by all threads of this consumer: at the start of an issue window, at its end, and
// once before the first window (about 9 lines).
// STUB: template <class T>
// STUB: __device__ __forceinline__ void ping_pong_wait(int index) {
// STUB:   WORKBOOK_TODO(11.8);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void ping_pong_pass(int index) {
// STUB:   WORKBOOK_TODO(11.8);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void ping_pong_start(int index) {
// STUB:   WORKBOOK_TODO(11.8);
// STUB: }
// BEGIN 11.8
template <class T>
__device__ __forceinline__ void ping_pong_wait(int index) {
  barrier_sync(1 + index, 256);
}
template <class T>
__device__ __forceinline__ void ping_pong_pass(int index) {
  barrier_arrive(1 + (index + 1) % T::consumers, 256);
}
template <class T>
__device__ __forceinline__ void ping_pong_start(int index) {
  if (index == T::consumers - 1) ping_pong_pass<T>(index);
}
// END 11.8

/// Algorithm 2 (intra-warpgroup pipelining): S of the next tile is issued before O += P V of the current tile. The
/// softmax of the next tile overlaps with O += P V.
template <class T>
__device__ __forceinline__ void consume_overlapped(Consumer<T>& consumer) {
  // The issue window, in versions with ping-pong: no other consumer issues matmuls during it.
  [[maybe_unused]] const auto begin_issue = [&] {
    if constexpr (T::ping_pong) ping_pong_wait<T>(consumer.index);
  };
  [[maybe_unused]] const auto end_issue = [&] {
    if constexpr (T::ping_pong) ping_pong_pass<T>(consumer.index);
  };
  // The block's last rows may see K/V tiles that this consumer's 64 rows do not see. The consumer skips these tiles,
  // but keeps its issue windows. It still waits for each tile: a wait identifies a phase only by its parity, so a
  // consumer must not be a full round ahead of the loads. Past Nq one tile remains, because the code below always
  // processes one.
  const int visible_tiles =
      consumer.first_query < consumer.call.Nq ? visible_kv_tiles<T>(consumer.call, consumer.first_query + 64) : 1;
  for (; consumer.kv_tiles > visible_tiles; --consumer.kv_tiles) {
    consumer.wait_K();
    consumer.release_K();
    consumer.wait_V();
    consumer.release_V();
    begin_issue();
    end_issue();
  }
  // TODO(11.7) In the loop, one issue window contains both matmuls: S = Q K_jᵀ, and O += P V_{j+1} of the previous
  // tile. The softmax of tile j overlaps with the latter. The first S is before the loop, in its own issue window; the
  // last O += P V is after the loop, in none. If T::K_before_O, wait for the next K before the wait for O, otherwise
  // before the issue window (about 28 lines).
  // BEGIN 11.7
  consumer.wait_K();
  begin_issue();
  consumer.start_S();
  end_issue();
  wgmma_wait_group<0>(consumer.S);
  consumer.release_K();
  consumer.softmax(consumer.kv_tiles - 1);
  round_P(consumer.P, consumer.S);
  if (T::K_before_O && consumer.kv_tiles > 1) consumer.wait_K();
  for (int j = consumer.kv_tiles - 2; j >= 0; --j) {
    if (!T::K_before_O) consumer.wait_K();
    begin_issue();
    consumer.start_S();
    rescale_O(consumer.O, consumer.rescale, j + 1);
    consumer.wait_V();
    consumer.start_O();
    end_issue();
    wgmma_wait_group<1>(consumer.S);  // S is complete, O is in flight
    consumer.release_K();
    consumer.softmax(j);  // overlaps with O += P V
    if (T::K_before_O && j > 0) consumer.wait_K();
    wgmma_wait_group<0>(consumer.O);
    consumer.release_V();
    round_P(consumer.P, consumer.S);  // O += P V has read the previous P
  }
  rescale_O(consumer.O, consumer.rescale, 0);
  consumer.wait_V(), consumer.start_O();
  wgmma_wait_group<0>(consumer.O);
  consumer.release_V();
  // END 11.7
}

/// A thread block has a producer warpgroup, of which one thread is active, and the consumer warpgroups. The grid has
/// one block per Q tile of a head or, if persistent, at most one block per SM.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    attention_kernel(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
                     const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap O,
                     const __grid_constant__ Call call) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  if (threadIdx.x == 0) make_barriers<T>(smem);
  __syncthreads();                                                      // the barriers are initialised
  const int group = __shfl_sync(all_lanes, int(threadIdx.x) / 128, 0);  // warp-uniform for the compiler
  if (group == 0) {
    setmaxnreg_dec<T::producer_registers>();
    if (threadIdx.x == 0) produce_all<T>(smem, Q, K, V, call);
  } else {
    setmaxnreg_inc<T::consumer_registers>();
    Consumer<T> consumer(smem, call, group - 1);
    if constexpr (T::ping_pong) ping_pong_start<T>(consumer.index);
    for (int iteration = 0;; ++iteration) {
      mbarrier_wait_parity(smem.Q_full, iteration % 2);
      __syncwarp();  // the compiler does not assume reconvergence after a wait
      const int tile_index =
          T::persistent ? __shfl_sync(all_lanes, threadIdx.x % 32 == 0 ? smem.tile_index : 0, 0) : blockIdx.x;
      if (tile_index == call.heads * call.q_tiles) break;
      const WorkTile<T> work(call, tile_index);
      consumer.begin(work);
      if constexpr (T::overlapped)
        consume_overlapped(consumer);
      else
        consume_in_order(consumer);
      write_output<T>(smem.O_buffer(consumer.index), O, call, consumer.O, consumer.m, consumer.l, work.head,
                      consumer.first_query, consumer.index);
      if constexpr (!T::persistent) break;
    }
    if (threadIdx.x % 128 == 0) cp_async_bulk_wait_group_read<0>();  // shared memory is freed when the block exits
  }
}

template <class T>
void start(const ForwardCall<Element>& call, int* tile_counter, int max_blocks) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t heads = B * H, q_tiles = (Nq + T::Br - 1) / T::Br;
  dim3 grid = workbook::cuda::grid_of(q_tiles * heads, "B·H·⌈Nq/Br⌉");
  if constexpr (T::persistent) grid.x = std::min(int(grid.x), max_blocks);
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)). If the scale is 0, the least positive float
  // gives the same result: all S·scale are 0.
  const float scale = std::max(std::abs(call.scale) * log2_e, std::numeric_limits<float>::min());
  const Call arguments{call.lse,     tile_counter, int(Nq),       int(Nk),       int(heads),
                       int(q_tiles), scale,        call.causal(), call.scale < 0};
  workbook::cuda::launch(attention_kernel<T>, grid, dim3(T::threads), sizeof(typename T::Shared),
                         make_tensor_map<T::d>(call.Q, heads, Nq, 64), make_tensor_map<T::d>(call.K, heads, Nk, T::Bc),
                         make_tensor_map<T::d>(call.V, heads, Nk, T::Bc), make_tensor_map<T::d>(call.O, heads, Nq, 64),
                         arguments);
}

/// Calls work with the Kernel for these sizes and this version, and returns its result. Versions before the last one
/// are built for fp16 only.
template <int step = std::is_same_v<Element, half> ? 1 : last_step, class Do>
auto with_kernel(int requested_step, std::int64_t head_dim, const Tiles& tiles, Do work) {
  if constexpr (step < last_step)
    if (requested_step != step) return with_kernel<step + 1>(requested_step, head_dim, tiles, work);
  return workbook::cuda::with_sizes<built>(head_dim, tiles, [&](auto d, auto t) {
    if constexpr (is_built(d, {t.Br, t.Bc, t.warps}, step)) return work(Kernel<Element, d, t.Bc, t.Br / 64, step>());
    return decltype(work(Kernel<Element, 64, 128, 3, step>()))();
  });
}

}  // namespace

// E is the element type for which this file is compiled.
template <class E>
void attention(const ForwardCall<E>& call, const Tiles& tiles, int step, int* tile_counter, int max_blocks) {
  if (!is_built(call.shape.d, tiles, step))
    throw std::invalid_argument("d = " + std::to_string(call.shape.d) + " with these tiles is not built");
  with_kernel(step, call.shape.d, tiles, [&](auto kernel) { start<decltype(kernel)>(call, tile_counter, max_blocks); });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles, int step) {
  return with_kernel(step, d, tiles, [](auto kernel) { return sizeof(typename decltype(kernel)::Shared); });
}
template void attention(const ForwardCall<Element>&, const Tiles&, int, int*, int);
template std::size_t shared_bytes<Element>(int, const Tiles&, int);

}  // namespace ch11
