// Chapter 19, which pairs, the backward pass on Hopper: a consumer's loop, the kernel and the launches.
// which_pairs_backward_bf16.cu compiles this file once more, for bf16.
//
// For sm_90a, ptxas of CUDA 13.0 spills nothing, but for d = 64 with a softcap: 4 bytes (nvcc -Xptxas -v).
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1. Test it: ./workbook test 19
#include "which_pairs_backward.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "consumer.hpp"
#include "prepare_rows.hpp"

namespace ch19 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; in which_pairs_backward_bf16.cu __nv_bfloat16
using workbook::cuda::setmaxnreg_dec, workbook::cuda::setmaxnreg_inc;

/// All steps, in chapter 13's order: products run beside whatever does not need them.
template <class T>
__device__ __forceinline__ void consume(Consumer<T>& own) {
  constexpr int all = T::Br / 16;
  for (int i = 0; i < own.work.steps; ++i) {
    own.wait_Q(i);
    own.start_S();
    own.load_lse();
    own.wait_dO(i);
    own.start_dP();
    wgmma_wait_group<1>(own.S);  // Sᵀ is there, dPᵀ not yet
    if constexpr (T::dV_early) {
      form_P<0, all / 2>(own);
      start_dV<0, all / 2>(own);
      form_P<all / 2, all>(own);
      start_dV<all / 2, all>(own);
      own.load_D();
      wgmma_wait_group<2>(own.dP);  // dPᵀ is there, both halves of dV not yet
      form_dS(own);
    } else {
      form_P<0, all>(own);
      own.load_D();
      wgmma_wait_group<0>(own.dP);
      form_dS(own);
      start_dV<0, all>(own);
    }
    fence_proxy_async();
    barrier_sync(dS_written, 256);  // dS of all 128 keys is there
    own.start_half_of_dQ();
    wgmma_wait_group<1>(own.dV, own.P);
    own.start_dK();
    wgmma_wait_group<1>(own.dQ);
    hand_over_dQ<T>(own.smem, own.dQ, own.number);  // beside dK += dSᵀ Q
    wgmma_wait_group<0>(own.dK, own.dS);
    own.leave();
  }
}

/// The number of this block in the order in which they begin, for all of its threads. With semaphores it is a ticket:
/// so nobody waits for a block that has not begun. It is the first barrier.
template <class T>
__device__ __forceinline__ int begin_block(typename T::Shared& smem, int* tickets) {
  if (threadIdx.x == 0) {
    make_barriers<T>(smem);
    if (tickets != nullptr) smem.ticket = atomicAdd(tickets, 1);
  }
  __syncthreads();  // the barriers are there, and the ticket
  return tickets != nullptr ? smem.ticket : int(blockIdx.x);
}

/// dK, dV and each K/V tile's part of dQ. One block for each K/V tile of each head of K and V: nobody else
/// writes these rows of dK and dV. It has a group of four warps of which one thread is the producer and one warp the
/// writer, and the consumers.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    gradients(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
              const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap dO,
              const __grid_constant__ TensorMap dK, const __grid_constant__ TensorMap dV,
              const __grid_constant__ Call call, const __grid_constant__ typename T::Change any_head) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  const Work<T> work(call, begin_block<T>(smem, call.semaphores));
  const int group = __shfl_sync(all_lanes, int(threadIdx.x) / 128, 0);  // the compiler sees: the same for the warp
  if (group == 0) {
    setmaxnreg_dec<T::producer_registers>();
    const int warp = __shfl_sync(all_lanes, int(threadIdx.x) / 32, 0);
    if (warp == 0 && threadIdx.x == 0) produce<T>(smem, Q, K, V, dO, call, work);
    if (warp == 1) write_dQ<T>(smem, call, work);
  } else {
    setmaxnreg_inc<T::consumer_registers>();
    Consumer<T> own(smem, call, work, any_head, group - 1);
    consume(own);
    // dV and dK go where V and K were: of V only this consumer has read its rows, of K the other one, too.
    store_gradient<T>(smem.V, dV, own.dV, 1, own.own, call, work);
    barrier_sync(dS_written, 256);  // nobody reads K any more
    store_gradient<T>(smem.K, dK, own.dK, call.scale, own.own, call, work);
    if (threadIdx.x % 128 == 0) cp_async_bulk_wait_group_read<0>();  // shared memory ends with the block's last thread
  }
}

/// How many heads of K and V go together. Without a right end one: its K/V tiles all have the same work.
int heads_together(const workbook::Setting& call) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  int heads = 1;
  if (call.mask.kind != workbook::Mask::none)  // of so many heads Q, dO and dQ_sum take no more than 40 MB
    while (2 * heads <= B * Hkv && 2 * heads * (H / Hkv) * Nq * d * 8 <= 40 << 20) heads *= 2;
  return heads;
}

template <class T>
void start(const BackwardCall<Element>& call, const Scratch& scratch, const typename T::Change& change) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  using Plain = Kernel<Element, T::d, Scaled>;  // finish_dQ knows nothing of a change
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t heads = B * H, kv_heads = B * Hkv, count = std::int64_t(padded_rows(call));
  if (std::max(heads * Nq, kv_heads * Nk) >= std::numeric_limits<int>::max())
    throw std::invalid_argument("B·H·N: TMA's coordinates are int, and rows are counted through all heads");
  const int padded = int(blocks_of_head(call.mask, Nq, 128) * 128);
  const Given given{int(blocks_of_head(call.mask, Nk, T::Bc)), int(H), int(H / Hkv), call.starts};
  const Call numbers{scratch.lse,          scratch.D, scratch.dQ_sum, scratch.semaphores, int(kv_heads),
                     heads_together(call), padded,    call.scale,     seen_keys(call),    given};
  launch(prepare_rows<T::d, Element>, grid_of((count * (T::d / 8) + 255) / 256, "B·H·Nq·d"), dim3(256), 0, call.O,
         call.dO, call.lse, scratch.lse, scratch.D, scratch.dQ_sum, scratch.semaphores, call.starts, count, padded,
         int(Nq));
  launch(gradients<T>, grid_of(given.kv_tiles * kv_heads, "B·Hkv·⌈Nk/Bc⌉"), dim3(T::threads),
         sizeof(typename T::Shared), map_of<T::d>(call.Q, heads, Nq, T::Br, T::d / 64),
         map_of<T::d>(call.K, kv_heads, Nk, T::Bc, T::d / 64), map_of<T::d>(call.V, kv_heads, Nk, T::Bc, T::d / 64),
         map_of<T::d>(call.dO, heads, Nq, T::Br, T::d / 64), map_of<T::d>(call.dK, kv_heads, Nk, 64, 1),
         map_of<T::d>(call.dV, kv_heads, Nk, 64, 1), numbers, change);
  launch(finish_dQ<Plain>, grid_of(padded / T::Br * heads, "B·H·⌈Nq/Br⌉"), dim3(256),
         T::Br * (T::d + 8) * sizeof(Element), scratch.dQ_sum, call.dQ, call.starts, padded / T::Br, int(Nq),
         call.scale);
  if (call.dsink != nullptr)
    launch(sink_gradient, dim3(unsigned(H)), dim3(32), 0, scratch.lse, scratch.D, call.sink, call.dsink, int(B), int(H),
           padded);
}

/// Calls work with the Kernel for d and this change, and gives what it gives.
template <class Change, class Do>
auto with_kernel(std::int64_t head_dim, Do work) {
  return workbook::cuda::with_head_dim<64>(head_dim, [&](auto d) { return work(Kernel<Element, d, Change>()); });
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void which_pairs_backward(const BackwardCall<E>& call, const Scratch& scratch, const GradientTiles& tiles) {
  if (!is_built(call.shape.d, tiles))
    throw std::invalid_argument("d = " + std::to_string(call.shape.d) + " with these tiles is not built");
  with_change(call, [&](const auto& change) {
    with_kernel<std::decay_t<decltype(change)>>(call.shape.d,
                                                [&](auto kernel) { start<decltype(kernel)>(call, scratch, change); });
  });
}
template <class E>
std::size_t shared_bytes(int d, const GradientTiles& tiles) {
  if (!is_built(d, tiles)) return 0;
  return with_kernel<Scaled>(d, [](auto kernel) { return sizeof(typename decltype(kernel)::Shared); });
}
template void which_pairs_backward(const BackwardCall<Element>&, const Scratch&, const GradientTiles&);
template std::size_t shared_bytes<Element>(int, const GradientTiles&);

}  // namespace ch19
