// Chapter 11, wgmma: a consumer's loop in the order of the algorithm and with overlap, the kernel, and the launch.
// wgmma_bf16.cu compiles this file once more, for bf16.
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

/// Algorithm 1: each product is waited for as soon as it is issued.
template <class T>
__device__ __forceinline__ void consume_in_order(Consumer<T>& own) {
  // TODO(11.6) For each tile j, from the last to the first: S = Q K_jᵀ; softmax; P; O += P V_j. Wait for a tile before
  // a product reads it and for the product before its registers are touched; leave a tile as soon as it has been read
  // (about 13 lines).
  // BEGIN 11.6
  for (int j = own.tiles - 1; j >= 0; --j) {
    own.wait_K();
    own.start_S();
    wgmma_wait_group<0>(own.S);
    own.leave_K();
    own.softmax(j);
    round_P(own.P, own.S);
    rescale_O(own.O, own.rescale, j);
    own.wait_V();
    own.start_O();
    wgmma_wait_group<0>(own.O);
    own.leave_V();
  }
  // END 11.6
}

// Ping-pong: a consumer issues its products when it is its turn, and passes the turn on, the last one to the first.
// Consumer i waits for its turn at barrier 1 + i, of 256 threads: its own 128, which wait there, and the 128 of the one
// before, which arrive and go on. At first nobody has passed anything to consumer 0: the last consumer does.
//
// TODO(11.8) Three functions of the consumer with this number: what it does before the first turn, at the beginning and
// at the end of a turn (about 9 lines).
// STUB: template <class T>
// STUB: __device__ __forceinline__ void ping_pong_start(int number) {
// STUB:   WORKBOOK_TODO(11.8);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void ping_pong_wait(int number) {
// STUB:   WORKBOOK_TODO(11.8);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void ping_pong_pass(int number) {
// STUB:   WORKBOOK_TODO(11.8);
// STUB: }
// BEGIN 11.8
template <class T>
__device__ __forceinline__ void ping_pong_wait(int number) {
  barrier_sync(1 + number, 256);
}
template <class T>
__device__ __forceinline__ void ping_pong_pass(int number) {
  barrier_arrive(1 + (number + 1) % T::consumers, 256);
}
template <class T>
__device__ __forceinline__ void ping_pong_start(int number) {
  if (number == T::consumers - 1) ping_pong_pass<T>(number);
}
// END 11.8

/// Algorithm 2: S of the next tile is issued before O += P V of this one, and the softmax runs beside that.
template <class T>
__device__ __forceinline__ void consume_overlapped(Consumer<T>& own) {
  // A turn, in those steps that have turns: what is issued in it is not mixed with other consumers' products.
  [[maybe_unused]] const auto begin_issue = [&] {
    if constexpr (T::ping_pong) ping_pong_wait<T>(own.number);
  };
  [[maybe_unused]] const auto end_issue = [&] {
    if constexpr (T::ping_pong) ping_pong_pass<T>(own.number);
  };
  // The block's last rows may see tiles that this consumer's 64 rows do not: it passes over them, in its turn. It waits
  // for each of them all the same, since a parity tells a barrier's phase from the one before, not from the one before
  // that: a consumer must not be a round ahead of the copies. For rows that do not exist one tile is enough.
  const int seen = own.first_query < own.call.Nq ? tiles_seen<T>(own.call, own.first_query + 64) : 1;
  for (; own.tiles > seen; --own.tiles) {
    own.wait_K();
    own.leave_K();
    own.wait_V();
    own.leave_V();
    begin_issue();
    end_issue();
  }
  // TODO(11.7) Both products in the loop are issued in one turn: S = Q K_jᵀ, and O += P V_{j+1} of the tile before. The
  // softmax of tile j runs beside the latter. The first S and the last O += P V stand alone, the S in a turn of its
  // own, the O in none. The wait for the next K stands before the wait for O if T::K_before_O, otherwise before the
  // turn (about 28 lines).
  // BEGIN 11.7
  own.wait_K();
  begin_issue();
  own.start_S();
  end_issue();
  wgmma_wait_group<0>(own.S);
  own.leave_K();
  own.softmax(own.tiles - 1);
  round_P(own.P, own.S);
  if (T::K_before_O && own.tiles > 1) own.wait_K();
  for (int j = own.tiles - 2; j >= 0; --j) {
    if (!T::K_before_O) own.wait_K();
    begin_issue();
    own.start_S();
    rescale_O(own.O, own.rescale, j + 1);
    own.wait_V();
    own.start_O();
    end_issue();
    wgmma_wait_group<1>(own.S);  // S is there, O not yet
    own.leave_K();
    own.softmax(j);  // beside O += P V
    if (T::K_before_O && j > 0) own.wait_K();
    wgmma_wait_group<0>(own.O);
    own.leave_V();
    round_P(own.P, own.S);  // the product has read P until now
  }
  rescale_O(own.O, own.rescale, 0);
  own.wait_V(), own.start_O();
  wgmma_wait_group<0>(own.O);
  own.leave_V();
  // END 11.7
}

/// A block has the producer's four warps, of which one thread works, and the consumers. There is one for each tile of
/// queries of a head or, if blocks stay, one for each multiprocessor.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    attention_kernel(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
                     const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap O,
                     const __grid_constant__ Call call) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  if (threadIdx.x == 0) make_barriers<T>(smem);
  __syncthreads();                                                      // the barriers are there
  const int group = __shfl_sync(all_lanes, int(threadIdx.x) / 128, 0);  // the compiler sees: the same for the warp
  if (group == 0) {
    setmaxnreg_dec<T::producer_registers>();
    if (threadIdx.x == 0) produce_all<T>(smem, Q, K, V, call);
  } else {
    setmaxnreg_inc<T::consumer_registers>();
    Consumer<T> own(smem, call, group - 1);
    if constexpr (T::ping_pong) ping_pong_start<T>(own.number);
    for (int round = 0;; ++round) {
      mbarrier_wait_parity(smem.Q_full, round % 2);
      __syncwarp();  // the compiler sees: no lane is elsewhere, and what follows is the same for the warp
      const int number =
          T::persistent ? __shfl_sync(all_lanes, threadIdx.x % 32 == 0 ? smem.number : 0, 0) : blockIdx.x;
      if (number == call.heads * call.q_tiles) break;
      const Work<T> work(call, number);
      own.begin(work);
      if constexpr (T::overlapped)
        consume_overlapped(own);
      else
        consume_in_order(own);
      write_output<T>(smem.place_of_O(own.number), O, call, own.O, own.m, own.l, work.head, own.first_query,
                      own.number);
      if constexpr (!T::persistent) break;
    }
    if (threadIdx.x % 128 == 0)
      cp_async_bulk_wait_group_read<0>();  // a block's shared memory ends with its last thread
  }
}

template <class T>
void start(const ForwardCall<Element>& call, int* taken, int most_blocks) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t heads = B * H, q_tiles = (Nq + T::Br - 1) / T::Br;
  dim3 grid = workbook::cuda::grid_of(q_tiles * heads, "B·H·⌈Nq/Br⌉");
  if constexpr (T::persistent) grid.x = std::min(int(grid.x), most_blocks);
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)). With a scale of 0 all S·scale are 0, as with
  // the least that is more.
  const float scale = std::max(std::abs(call.scale) * log2_e, std::numeric_limits<float>::min());
  const Call numbers{call.lse, taken, int(Nq), int(Nk), int(heads), int(q_tiles), scale, call.causal(), call.scale < 0};
  workbook::cuda::launch(attention_kernel<T>, grid, dim3(T::threads), sizeof(typename T::Shared),
                         map_of<T::d>(call.Q, heads, Nq, 64), map_of<T::d>(call.K, heads, Nk, T::Bc),
                         map_of<T::d>(call.V, heads, Nk, T::Bc), map_of<T::d>(call.O, heads, Nq, 64), numbers);
}

/// Calls work with the Kernel for these sizes and this step, and gives what it gives. The steps before the last one are
/// built for fp16.
template <int step = std::is_same_v<Element, half> ? 1 : last_step, class Do>
auto with_kernel(int asked, std::int64_t head_dim, const Tiles& tiles, Do work) {
  if constexpr (step < last_step)
    if (asked != step) return with_kernel<step + 1>(asked, head_dim, tiles, work);
  return workbook::cuda::with_sizes<built>(head_dim, tiles, [&](auto d, auto t) {
    if constexpr (is_built(d, {t.Br, t.Bc, t.warps}, step)) return work(Kernel<Element, d, t.Bc, t.Br / 64, step>());
    return decltype(work(Kernel<Element, 64, 128, 3, step>()))();
  });
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void attention(const ForwardCall<E>& call, const Tiles& tiles, int step, int* taken, int most_blocks) {
  if (!is_built(call.shape.d, tiles, step))
    throw std::invalid_argument("d = " + std::to_string(call.shape.d) + " with these tiles is not built");
  with_kernel(step, call.shape.d, tiles, [&](auto kernel) { start<decltype(kernel)>(call, taken, most_blocks); });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles, int step) {
  return with_kernel(step, d, tiles, [](auto kernel) { return sizeof(typename decltype(kernel)::Shared); });
}
template void attention(const ForwardCall<Element>&, const Tiles&, int, int*, int);
template std::size_t shared_bytes<Element>(int, const Tiles&, int);

}  // namespace ch11
