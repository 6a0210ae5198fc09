// Chapter 13: a consumer's loop, in order and overlapped, the kernel, and the launches. backward_wgmma_bf16.cu compiles
// this file again, for bf16.
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

/// Waits for each matmul as soon as it is issued.
template <class T>
__device__ __forceinline__ void consume_in_order(Consumer<T>& consumer) {
  constexpr int all = T::Br / 16;
  // TODO(13.8) For each Q tile i below work.q_count: Sᵀ and dPᵀ; P, then dS; dV and dK; dQ and its hand-over. Wait
  // for a tile before an MMA or a load_… reads it, and for a matmul before its registers are used. Release the stage
  // after its last read. Between dS and dQ make dS visible to the tensor cores, then synchronise both consumers:
  // barrier dS_written, 256 threads (about 22 lines).
  // BEGIN 13.8
  WORKBOOK_TODO(13.8);
  // END 13.8
}

/// Each matmul overlaps with the work that does not need its result.
template <class T>
__device__ __forceinline__ void consume_overlapped(Consumer<T>& consumer) {
  constexpr int all = T::Br / 16;
  // TODO(13.9) The same work in another order. Issue Sᵀ, then dPᵀ; compute P while dPᵀ runs. Issue dV after dS or, if
  // T::dV_early, in two halves, each when its half of P is ready. Issue dQ while dV runs and dK while dQ runs; hand
  // dQ over while dK runs. Load LSE while Sᵀ runs. Load D while dPᵀ runs, but not before P is formed: D takes
  // registers. Groups complete in the order in which they are issued: before each use, wait for the group that you
  // need, and for no later one (about 32 lines).
  // BEGIN 13.9
  WORKBOOK_TODO(13.9);
  // END 13.9
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

/// dK, dV, and each K/V tile's contribution to dQ. One block per K/V tile and head. Warpgroup 0 contains the producer,
/// one thread of warp 0, and the writer, warp 1. Warpgroups 1 and 2 are the consumers.
template <class T>
__global__ void __launch_bounds__(T::threads, 1)
    gradients(const __grid_constant__ TensorMap Q, const __grid_constant__ TensorMap K,
              const __grid_constant__ TensorMap V, const __grid_constant__ TensorMap dO,
              const __grid_constant__ TensorMap dK, const __grid_constant__ TensorMap dV,
              const __grid_constant__ Call call) {
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
    Consumer<T> consumer(smem, call, work, warpgroup - 1);
    if constexpr (T::overlapped)
      consume_overlapped(consumer);
    else
      consume_in_order(consumer);
    // dV and dK overwrite V and K. Only this consumer reads its rows of V, but both read all of K.
    store_gradient<T>(smem.V, dV, consumer.dV, 1, consumer.first_key, work);
    barrier_sync(dS_written, 256);  // both consumers have read K
    store_gradient<T>(smem.K, dK, consumer.dK, call.scale, consumer.first_key, work);
    if (threadIdx.x % 128 == 0) cp_async_bulk_wait_group_read<0>();  // smem must outlive the reads of the stores
  }
}

template <class T>
void start(const BackwardCall<Element>& call, const float* dlse, const Scratch& scratch) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  const std::int64_t heads = B * H, count = std::int64_t(padded_rows(call.shape));
  const std::int64_t kv_tiles = (Nk + T::Bc - 1) / T::Bc, q_tiles = (Nq + T::Br - 1) / T::Br;
  int heads_per_group = 1;
  if (call.causal())  // Q, dO and dQ_sum of a group of heads take at most 40 MiB of the L2 cache
    while (2 * heads_per_group <= heads && 2 * heads_per_group * Nq * T::d * 8 <= 40 << 20) heads_per_group *= 2;
  const Call parameters{scratch.lse,   scratch.D,  scratch.dQ_sum,      scratch.semaphores,
                        int(Nq),       int(Nk),    int(heads),          heads_per_group,
                        int(kv_tiles), call.scale, call.scale * log2_e, call.causal()};
  launch(prepare_rows<T::d, Element>, grid_of((count * (T::d / 8) + 255) / 256, "B·H·Nq·d"), dim3(256), 0, call.O,
         call.dO, call.lse, dlse, scratch.lse, scratch.D, scratch.dQ_sum, scratch.semaphores, count, int(Nq));
  launch(gradients<T>, grid_of(kv_tiles * heads, "B·H·⌈Nk/Bc⌉"), dim3(T::threads), sizeof(typename T::Shared),
         make_tensor_map<T::d>(call.Q, heads, Nq, T::Br, T::d / 64),
         make_tensor_map<T::d>(call.K, heads, Nk, T::Bc, T::d / 64),
         make_tensor_map<T::d>(call.V, heads, Nk, T::Bc, T::d / 64),
         make_tensor_map<T::d>(call.dO, heads, Nq, T::Br, T::d / 64), make_tensor_map<T::d>(call.dK, heads, Nk, 64, 1),
         make_tensor_map<T::d>(call.dV, heads, Nk, 64, 1), parameters);
  launch(finish_dQ<T>, grid_of(q_tiles * heads, "B·H·⌈Nq/Br⌉"), dim3(256), T::Br * (T::d + 8) * sizeof(Element),
         scratch.dQ_sum, call.dQ, int(q_tiles), int(Nq), call.scale);
}

/// Calls `function` with the Kernel for d and this version, and returns its result. Versions before the last one are
/// built for fp16 only.
template <int step = std::is_same_v<Element, half> ? 1 : last_step, class Function>
auto with_kernel(int requested_step, std::int64_t head_dim, Function function) {
  if constexpr (step < last_step)
    if (requested_step != step) return with_kernel<step + 1>(requested_step, head_dim, function);
  return workbook::cuda::with_head_dim<64>(head_dim, [&](auto d) { return function(Kernel<Element, d, step>()); });
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
