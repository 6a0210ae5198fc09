// Chapter 18, which pairs, on Hopper: a consumer's loop, the kernel and the launch. which_pairs_hopper_bf16.cu compiles
// this file once more, for bf16.
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

// Ping-pong, as in chapter 11: a consumer issues its products when it is its turn, and passes the turn on, the last one
// to the first. Consumer i waits for its turn at barrier 1 + i, of 256 threads.
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

/// Passes over tiles that this consumer's rows do not see, each in its turn. It waits for each of them all the same,
/// since a parity tells a barrier's phase from the one before, not from the one before that: a consumer must not be a
/// round ahead of the copies.
template <class T>
__device__ __forceinline__ void pass_over(Consumer<T>& own, int tiles) {
  for (; tiles > 0; --tiles) {
    own.wait_K();
    own.leave_K();
    own.wait_V();
    own.leave_V();
    ping_pong_wait<T>(own.number);
    ping_pong_pass<T>(own.number);
  }
}

/// Algorithm 2 for the consumer's own tiles, of which there is at least one: S of the next tile is issued before
/// O += P V of this one, and the softmax runs beside that.
template <class T>
__device__ __forceinline__ void attend(Consumer<T>& own) {
  int j = own.tiles.last - 1;
  own.wait_K();
  ping_pong_wait<T>(own.number);
  own.start_S();
  ping_pong_pass<T>(own.number);
  wgmma_wait_group<0>(own.S);
  own.leave_K();
  own.softmax(j);
  round_P(own.P, own.S);
  if (T::K_before_O && j > own.tiles.first) own.wait_K();
  while (--j >= own.tiles.first) {
    if (!T::K_before_O) own.wait_K();
    ping_pong_wait<T>(own.number);
    own.start_S();
    rescale_O(own.O, own.rescale, j + 1);
    own.wait_V();
    own.start_O();
    ping_pong_pass<T>(own.number);
    wgmma_wait_group<1>(own.S);  // S is there, O not yet
    own.leave_K();
    own.softmax(j);  // beside O += P V
    if (T::K_before_O && j > own.tiles.first) own.wait_K();
    wgmma_wait_group<0>(own.O);
    own.leave_V();
    round_P(own.P, own.S);  // the product has read P until now
  }
  rescale_O(own.O, own.rescale, own.tiles.first);
  own.wait_V(), own.start_O();
  wgmma_wait_group<0>(own.O);
  own.leave_V();
}

/// All tiles of a block's tile of queries, from the last to the first: every consumer takes part in as many turns.
template <class T>
__device__ __forceinline__ void consume(Consumer<T>& own) {
  // TODO(18.5) Pass over the tiles behind the consumer's own, attend to those, pass over the ones before. Who has none
  // leaves Q at once (about 4 lines).
  // BEGIN 18.5
  const bool any = own.tiles.first < own.tiles.last;
  if (!any) own.leave_Q();
  pass_over(own, own.block_tiles.last - own.tiles.last);
  if (any) attend(own);
  pass_over(own, own.tiles.first - own.block_tiles.first);
  // END 18.5
}

/// A block has the producer's four warps, of which one thread works, and the consumers. There is one for each
/// multiprocessor.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    attention_kernel(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
                     const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap O,
                     const __grid_constant__ Call call, const __grid_constant__ typename T::Change any_head) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  if (threadIdx.x == 0) make_barriers<T>(smem);
  __syncthreads();                                                      // the barriers are there
  const int group = __shfl_sync(all_lanes, int(threadIdx.x) / 128, 0);  // the compiler sees: the same for the warp
  if (group == 0) {
    setmaxnreg_dec<T::producer_registers>();
    if (threadIdx.x == 0) produce_all<T>(smem, Q, K, V, call);
  } else {
    setmaxnreg_inc<T::consumer_registers>();
    Consumer<T> own(smem, any_head, group - 1);
    ping_pong_start<T>(own.number);
    for (int round = 0;; ++round) {
      mbarrier_wait_parity(smem.Q_full, round % 2);
      __syncwarp();  // the compiler sees: no lane is elsewhere, and what follows is the same for the warp
      const Work& work = smem.work[round % 2];
      const int head = read_once(work.head), head_of_batch = head % call.given.heads;
      if (head < 0) break;
      own.begin(work);
      own.change = any_head.of_head(head_of_batch, call.given.heads);
      own.begin_with_sink(call.given.sink == nullptr ? -INFINITY : call.given.sink[head_of_batch] * log2_e);
      consume(own);
      write_output<T>(smem.O[own.number], O, call, work, own.O, own.m, own.l, own.number);
    }
    if (threadIdx.x % 128 == 0)
      cp_async_bulk_wait_group_read<0>();  // a block's shared memory ends with its last thread
  }
}

template <class T>
void start(const ForwardCall<Element>& call, const typename T::Change& change, int* taken, int most_blocks) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t heads = B * H, q_tiles = tiles_of_head(call.mask, call.shape.Nq, T::Br);
  if (std::max(heads * call.shape.Nq, B * call.shape.Hkv * call.shape.Nk) >= std::numeric_limits<int>::max())
    throw std::invalid_argument("B·H·N: TMA's coordinates are int, and rows are counted through all heads");
  dim3 grid = workbook::cuda::grid_of(q_tiles * heads, "B·H·⌈Nq/Br⌉");
  grid.x = std::min(int(grid.x), most_blocks);
  const SeenKeys seen = seen_keys(call);
  // Heads that share K and V are neighbours. Where a mask makes tiles of queries differ, the gaps at
  // the end are filled from the last heads alone, so that there should be many of them.
  const int group = int(H / Hkv), at_once = call.mask.kind == workbook::Mask::none && call.starts == nullptr ? 4 : 16;
  const Call numbers{call.lse,   taken,
                     int(heads), std::max(at_once, group),
                     seen,       Given{int(q_tiles), int(H), group, call.sink, call.starts}};
  workbook::cuda::launch(attention_kernel<T>, grid, dim3(T::threads), sizeof(typename T::Shared),
                         map_of<T::d>(call.Q, heads, Nq, 64), map_of<T::d>(call.K, B * Hkv, Nk, T::Bc),
                         map_of<T::d>(call.V, B * Hkv, Nk, T::Bc), map_of<T::d>(call.O, heads, Nq, 64), numbers,
                         change);
}

/// Calls work with the Kernel for these sizes and this change, and gives what it gives.
template <class Change, class Do>
auto with_kernel(std::int64_t head_dim, const Tiles& tiles, Do work) {
  return workbook::cuda::with_sizes<built>(head_dim, tiles, [&](auto d, auto t) {
    if constexpr (is_built(d, {t.Br, t.Bc, t.warps})) return work(Kernel<Element, d, t.Bc, t.Br / 64, Change>());
    return decltype(work(Kernel<Element, 64, 64, 2, Change>()))();
  });
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void which_pairs(const ForwardCall<E>& call, const Tiles& tiles, int* taken, int most_blocks) {
  if (!is_built(call.shape.d, tiles))
    throw std::invalid_argument("d = " + std::to_string(call.shape.d) + " with these tiles is not built");
  with_change(call, [&](const auto& change) {
    using Change = std::decay_t<decltype(change)>;
    with_kernel<Change>(call.shape.d, tiles,
                        [&](auto kernel) { start<decltype(kernel)>(call, change, taken, most_blocks); });
  });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return with_kernel<Scaled>(d, tiles, [](auto kernel) { return sizeof(typename decltype(kernel)::Shared); });
}
template void which_pairs(const ForwardCall<Element>&, const Tiles&, int*, int);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch18
