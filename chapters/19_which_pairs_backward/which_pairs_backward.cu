// Chapter 19: a consumer's loop, the kernel, and the launches. which_pairs_backward_bf16.cu compiles this file again,
// for bf16.
//
// For sm_90a, ptxas of CUDA 13.0 spills no registers, except 4 bytes for d = 64 with a softcap (nvcc -Xptxas -v).
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

/// Each matmul overlaps with the work that does not need its result, in chapter 13's order.
template <class T>
__device__ __forceinline__ void consume(Consumer<T>& consumer) {
  constexpr int all = T::Br / 16;
  for (int i = 0; i < consumer.work.steps; ++i) {
    consumer.wait_Q(i);
    consumer.start_S();
    consumer.load_lse();
    consumer.wait_dO(i);
    consumer.start_dP();
    wgmma_wait_group<1>(consumer.S);  // Sᵀ is complete, dPᵀ in flight
    if constexpr (T::dV_early) {
      form_P<0, all / 2>(consumer);
      start_dV<0, all / 2>(consumer);
      form_P<all / 2, all>(consumer);
      start_dV<all / 2, all>(consumer);
      consumer.load_D();
      wgmma_wait_group<2>(consumer.dP);  // dPᵀ is complete, both halves of dV in flight
      form_dS(consumer);
    } else {
      form_P<0, all>(consumer);
      consumer.load_D();
      wgmma_wait_group<0>(consumer.dP);
      form_dS(consumer);
      start_dV<0, all>(consumer);
    }
    fence_proxy_async();
    barrier_sync(dS_written, 256);  // dS of all 128 keys is written
    consumer.start_dQ_half();
    wgmma_wait_group<1>(consumer.dV, consumer.P);
    consumer.start_dK();
    wgmma_wait_group<1>(consumer.dQ);
    hand_over_dQ<T>(consumer.smem, consumer.dQ, consumer.index);  // while dK += dSᵀ Q runs
    wgmma_wait_group<0>(consumer.dK, consumer.dS);
    consumer.release_stage();
  }
}

/// The index of this block's work, for all threads. In deterministic mode it is a ticket, drawn when the block starts,
/// so that no block waits for one that has not started. Its __syncthreads is the kernel's first barrier.
template <class T>
__device__ __forceinline__ int begin_block(typename T::Shared& smem, int* tickets) {
  if (threadIdx.x == 0) {
    init_barriers<T>(smem);
    if (tickets != nullptr) smem.ticket = atomicAdd(tickets, 1);
  }
  __syncthreads();  // the mbarriers and the ticket are visible
  return tickets != nullptr ? smem.ticket : int(blockIdx.x);
}

/// dK, dV, and each K/V tile's contribution to dQ. One block per K/V tile and head of K and V, which alone writes these
/// rows of dK and dV. Warpgroup 0 contains the producer, one thread of warp 0, and the writer, warp 1. Warpgroups 1 and
/// 2 are the consumers.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    gradients(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
              const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap dO,
              const __grid_constant__ TensorMap dK, const __grid_constant__ TensorMap dV,
              const __grid_constant__ Call call, const __grid_constant__ typename T::ScoreMod base_mod) {
  auto& smem = workbook::cuda::dynamic_shared<typename T::Shared>();
  const WorkTile<T> work(call, begin_block<T>(smem, call.semaphores));
  const int warpgroup = __shfl_sync(all_lanes, int(threadIdx.x) / 128, 0);  // warp-uniform for the compiler
  if (warpgroup == 0) {
    setmaxnreg_dec<T::producer_registers>();
    const int warp = __shfl_sync(all_lanes, int(threadIdx.x) / 32, 0);
    if (warp == 0 && threadIdx.x == 0) produce<T>(smem, Q, K, V, dO, call, work);
    if (warp == 1) write_dQ<T>(smem, call, work);
  } else {
    setmaxnreg_inc<T::consumer_registers>();
    Consumer<T> consumer(smem, call, work, base_mod, warpgroup - 1);
    consume(consumer);
    // dV and dK overwrite V and K. Only this consumer reads its rows of V, but both read all of K.
    store_gradient<T>(smem.V, dV, consumer.dV, 1, consumer.first_key, call, work);
    barrier_sync(dS_written, 256);  // both consumers have read K
    store_gradient<T>(smem.K, dK, consumer.dK, call.scale, consumer.first_key, call, work);
    if (threadIdx.x % 128 == 0) cp_async_bulk_wait_group_read<0>();  // smem must outlive the reads of the stores
  }
}

/// The number of heads of K and V that are scheduled together: 1 without a mask, where all K/V tiles of a head have the
/// same work.
int heads_per_group(const workbook::Setting& call) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  int heads = 1;
  if (call.mask.kind != workbook::Mask::none)  // Q, dO and dQ_sum of a group take at most 40 MiB of the L2 cache
    while (2 * heads <= B * Hkv && 2 * heads * (H / Hkv) * Nq * d * 8 <= 40 << 20) heads *= 2;
  return heads;
}

template <class T>
void start(const BackwardCall<Element>& call, const Scratch& scratch, const typename T::ScoreMod& score_mod) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  using Plain = Kernel<Element, T::d, Scaled>;  // finish_dQ does not depend on the score modification
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t heads = B * H, kv_heads = B * Hkv, count = std::int64_t(padded_rows(call));
  if (std::max(heads * Nq, kv_heads * Nk) >= std::numeric_limits<int>::max())
    throw std::invalid_argument("B·H·N: TMA's coordinates are int, and rows are numbered across all heads");
  const int padded = int(tiles_per_head(call.mask, Nq, 128) * 128);
  const Problem problem{int(tiles_per_head(call.mask, Nk, T::Bc)), int(H), int(H / Hkv), call.starts};
  const Call parameters{scratch.lse,           scratch.D, scratch.dQ_sum, scratch.semaphores, int(kv_heads),
                        heads_per_group(call), padded,    call.scale,     window_mask(call),  problem};
  launch(prepare_rows<T::d, Element>, grid_of((count * (T::d / 8) + 255) / 256, "B·H·Nq·d"), dim3(256), 0, call.O,
         call.dO, call.lse, call.dlse, scratch.lse, scratch.D, scratch.dQ_sum, scratch.semaphores, call.starts, count,
         padded, int(Nq));
  launch(gradients<T>, grid_of(problem.kv_tiles * kv_heads, "B·Hkv·⌈Nk/Bc⌉"), dim3(T::threads),
         sizeof(typename T::Shared), make_tensor_map<T::d>(call.Q, heads, Nq, T::Br, T::d / 64),
         make_tensor_map<T::d>(call.K, kv_heads, Nk, T::Bc, T::d / 64),
         make_tensor_map<T::d>(call.V, kv_heads, Nk, T::Bc, T::d / 64),
         make_tensor_map<T::d>(call.dO, heads, Nq, T::Br, T::d / 64),
         make_tensor_map<T::d>(call.dK, kv_heads, Nk, 64, 1), make_tensor_map<T::d>(call.dV, kv_heads, Nk, 64, 1),
         parameters, score_mod);
  launch(finish_dQ<Plain>, grid_of(padded / T::Br * heads, "B·H·⌈Nq/Br⌉"), dim3(256),
         T::Br * (T::d + 8) * sizeof(Element), scratch.dQ_sum, call.dQ, call.starts, padded / T::Br, int(Nq),
         call.scale);
  if (call.dsink != nullptr)
    launch(sink_gradient, dim3(unsigned(H)), dim3(32), 0, scratch.lse, scratch.D, call.sink, call.dsink, int(B), int(H),
           padded);
}

/// Calls `function` with the Kernel for d and this score modification, and returns its result.
template <class ScoreMod, class Function>
auto with_kernel(std::int64_t head_dim, Function function) {
  return workbook::cuda::with_head_dim<64>(head_dim, [&](auto d) { return function(Kernel<Element, d, ScoreMod>()); });
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void which_pairs_backward(const BackwardCall<E>& call, const Scratch& scratch, const GradientTiles& tiles) {
  if (!is_built(call.shape.d, tiles))
    throw std::invalid_argument("d = " + std::to_string(call.shape.d) + " with these tiles is not built");
  with_score_mod(call, [&](const auto& score_mod) {
    with_kernel<std::decay_t<decltype(score_mod)>>(
        call.shape.d, [&](auto kernel) { start<decltype(kernel)>(call, scratch, score_mod); });
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
