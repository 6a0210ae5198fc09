// Chapter 13, the backward pass by wgmma and TMA: a consumer's loop in order and with overlap, the kernel, and the
// launches. backward_wgmma_bf16.cu compiles this file once more, for bf16.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1. Test it: ./workbook test 13
#include "backward_wgmma.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "consumer.hpp"
#include "prepare_rows.hpp"

namespace ch13 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; in backward_wgmma_bf16.cu __nv_bfloat16
using workbook::cuda::setmaxnreg_dec, workbook::cuda::setmaxnreg_inc;

/// Each product is waited for as soon as it is issued.
template <class T>
__device__ __forceinline__ void consume_in_order(Consumer<T>& own) {
  constexpr int all = T::Br / 16;
  // TODO(13.8) For each Q tile i of work.count, numbered from 0: Sᵀ and dPᵀ; P, then dS; dV, dK; dQ, and its
  // hand-over. Wait for a tile before a product or load_… reads it and for a product before its registers are touched;
  // leave the stage when it has been read for the last time. Between dS and dQ both consumers meet, when dS has been
  // shown to the tensor cores: barrier dS_written, of 256 threads (about 22 lines).
  // BEGIN 13.8
  WORKBOOK_TODO(13.8);
  // END 13.8
}

/// Products run beside whatever does not need them.
template <class T>
__device__ __forceinline__ void consume_overlapped(Consumer<T>& own) {
  constexpr int all = T::Br / 16;
  // TODO(13.9) The same in another order. Sᵀ and dPᵀ are issued together, P is formed beside dPᵀ; dV is issued after
  // dS, or, if T::dV_early, in two halves, each as soon as its half of P is there. dQ is issued beside dV, dK beside
  // dQ, and dQ is handed over beside dK. LSE is loaded beside S, D beside dP, and not before P is formed: it takes
  // registers. Groups end in the order in which they were issued: before each use wait for the group that is used, and
  // for none behind it (about 32 lines).
  // BEGIN 13.9
  WORKBOOK_TODO(13.9);
  // END 13.9
}

/// The number of this block in the order in which they begin, for all of its threads. With turns it is a ticket: so
/// nobody waits for a block that has not begun. It is the first barrier.
template <class T>
__device__ __forceinline__ int begin_block(typename T::Shared& smem, int* tickets) {
  if (threadIdx.x == 0) {
    make_barriers<T>(smem);
    if (tickets != nullptr) smem.ticket = atomicAdd(tickets, 1);
  }
  __syncthreads();  // the barriers are there, and the ticket
  return tickets != nullptr ? smem.ticket : int(blockIdx.x);
}

/// dK, dV and each K/V tile's part of dQ. One block for each K/V tile of each head: a group of four warps of
/// which one thread is the producer and one warp the writer, and the consumers.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    gradients(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
              const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap dO,
              const __grid_constant__ TensorMap dK, const __grid_constant__ TensorMap dV,
              const __grid_constant__ Call call) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  const Work<T> work(call, begin_block<T>(smem, call.turns));
  const int group = __shfl_sync(all_lanes, int(threadIdx.x) / 128, 0);  // the compiler sees: the same for the warp
  if (group == 0) {
    setmaxnreg_dec<T::producer_registers>();
    const int warp = __shfl_sync(all_lanes, int(threadIdx.x) / 32, 0);
    if (warp == 0 && threadIdx.x == 0) produce<T>(smem, Q, K, V, dO, call, work);
    if (warp == 1) write_dQ<T>(smem, call, work);
  } else {
    setmaxnreg_inc<T::consumer_registers>();
    Consumer<T> own(smem, call, work, group - 1);
    if constexpr (T::overlapped)
      consume_overlapped(own);
    else
      consume_in_order(own);
    // dV and dK go where V and K were: of V only this consumer has read its rows, of K the other one, too.
    store_gradient<T>(smem.V, dV, own.dV, 1, own.own, work);
    barrier_sync(dS_written, 256);  // nobody reads K any more
    store_gradient<T>(smem.K, dK, own.dK, call.scale, own.own, work);
    if (threadIdx.x % 128 == 0) cp_async_bulk_wait_group_read<0>();  // shared memory ends with the block's last thread
  }
}

template <class T>
void start(const BackwardCall<Element>& call, const float* dlse, const Scratch& scratch) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t heads = B * H, count = std::int64_t(padded_rows(call.shape));
  const std::int64_t kv_tiles = (Nk + T::Bc - 1) / T::Bc, q_tiles = (Nq + T::Br - 1) / T::Br;
  int heads_at_once = 1;
  if (call.causal())  // of so many heads Q, dO and dQ_sum take no more than 40 MB
    while (2 * heads_at_once <= heads && 2 * heads_at_once * Nq * T::d * 8 <= 40 << 20) heads_at_once *= 2;
  const Call numbers{
      scratch.lse,   scratch.D,          scratch.dQ_sum, scratch.turns,       int(Nq),      int(Nk), int(heads),
      heads_at_once, int(kv_tiles), call.scale,     call.scale * log2_e, call.causal()};
  launch(prepare_rows<T::d, Element>, grid_of((count * (T::d / 8) + 255) / 256, "B·H·Nq·d"), dim3(256), 0, call.O,
         call.dO, call.lse, dlse, scratch.lse, scratch.D, scratch.dQ_sum, scratch.turns, count, int(Nq));
  launch(gradients<T>, grid_of(kv_tiles * heads, "B·H·⌈Nk/Bc⌉"), dim3(T::threads), sizeof(typename T::Shared),
         map_of<T::d>(call.Q, heads, Nq, T::Br, T::d / 64), map_of<T::d>(call.K, heads, Nk, T::Bc, T::d / 64),
         map_of<T::d>(call.V, heads, Nk, T::Bc, T::d / 64), map_of<T::d>(call.dO, heads, Nq, T::Br, T::d / 64),
         map_of<T::d>(call.dK, heads, Nk, 64, 1), map_of<T::d>(call.dV, heads, Nk, 64, 1), numbers);
  launch(finish_dQ<T>, grid_of(q_tiles * heads, "B·H·⌈Nq/Br⌉"), dim3(256), T::Br * (T::d + 8) * sizeof(Element),
         scratch.dQ_sum, call.dQ, int(q_tiles), int(Nq), call.scale);
}

/// Calls work with the Kernel for d and this step, and gives what it gives. The steps before the last one are built for
/// fp16.
template <int step = std::is_same_v<Element, half> ? 1 : last_step, class Do>
auto with_kernel(int asked, std::int64_t head_dim, Do work) {
  if constexpr (step < last_step)
    if (asked != step) return with_kernel<step + 1>(asked, head_dim, work);
  return workbook::cuda::with_head_dim<64>(head_dim, [&](auto d) { return work(Kernel<Element, d, step>()); });
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void backward(const BackwardCall<E>& call, const float* dlse, const Scratch& scratch, const GradientTiles& tiles,
              int step) {
  if (!is_built(int(call.shape.d), tiles))
    throw std::invalid_argument("d = " + std::to_string(call.shape.d) + " with these tiles is not built");
  with_kernel(step, call.shape.d, [&](auto kernel) { start<decltype(kernel)>(call, dlse, scratch); });
}
template <class E>
std::size_t shared_bytes(int d, const GradientTiles& tiles, int step) {
  if (!is_built(d, tiles)) return 0;
  return with_kernel(step, d, [](auto kernel) { return sizeof(typename decltype(kernel)::Shared); });
}
template void backward(const BackwardCall<Element>&, const float*, const Scratch&, const GradientTiles&, int);
template std::size_t shared_bytes<Element>(int, const GradientTiles&, int);

}  // namespace ch13
