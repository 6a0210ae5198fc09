// The part of ptx.hpp for Hopper's barriers, copies and register allocation: one function per machine instruction,
// named as in the PTX manual. Include ptx.hpp. common/simt implements barriers, copies and fences for the simulator.
#pragma once

#include "common/cuda/ptx.hpp"
#include "common/cuda/tensor_map.hpp"

// For older GPUs, nvcc compiles the functions with Hopper's instructions as traps. A chapter's files then compile for
// these GPUs too, and its stage can report what it needs. This is a macro, since ptxas reads every compiled asm
// statement.
#if defined(__CUDACC__)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define WORKBOOK_HOPPER_ASM(...) __trap()
#else
#define WORKBOOK_HOPPER_ASM(...) asm volatile(__VA_ARGS__)
#endif
#endif

namespace workbook::cuda {

// --- Barriers in shared memory ---------------------------------------------------------------------------------------
// "Parallel Synchronization and Communication Instructions: mbarrier". A barrier phase completes when the number of
// arrivals given to mbarrier_init is reached and all expected bytes have arrived. Then the next phase begins. Phases
// have the parities 0, 1, 0, 1, …

/// A barrier: 8 bytes of shared memory, at a multiple of 8.
using Mbarrier = std::uint64_t;

/// mbarrier.init: called once, by one thread. Other threads may use the barrier after fence_mbarrier_init and a
/// __syncthreads.
__device__ __forceinline__ void mbarrier_init(Mbarrier& barrier, int arrivals) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
                      : "memory");
#else
  simt::mbarrier_init(&barrier, arrivals);
#endif
}
/// fence.mbarrier_init: a release fence for this thread's earlier mbarrier.init only. As in CUTLASS, it precedes the
/// first use of the barriers by TMA; the CUDA C++ Programming Guide's examples use fence.proxy.async there.
__device__ __forceinline__ void fence_mbarrier_init() {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  simt::mbarrier_fence_init();
#endif
}
/// mbarrier.arrive: this thread's earlier memory operations become visible to every thread that waits for this phase.
__device__ __forceinline__ void mbarrier_arrive(Mbarrier& barrier) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
#else
  simt::mbarrier_arrive(&barrier);
#endif
}
/// mbarrier.arrive.expect_tx: arrives, and the phase does not complete before `bytes` more bytes have been copied.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier& barrier, int bytes) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
                      "r"(bytes)
                      : "memory");
#else
  simt::mbarrier_arrive_expect(&barrier, bytes);
#endif
}
/// mbarrier.try_wait.parity, repeated until it succeeds: waits for the completion of the phase with this parity.
/// Returns immediately if the current phase has the other parity, because the previous phase is complete (the phase
/// before the first one has parity 1).
__device__ __forceinline__ void mbarrier_wait_parity(Mbarrier& barrier, int parity) {
#if defined(__CUDACC__)
  std::uint32_t ended = 0;
  while (!ended) {
    WORKBOOK_HOPPER_ASM("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                        : "=r"(ended)
                        : "r"(shared_address(&barrier)), "r"(parity)
                        : "memory");
  }
#else
  simt::mbarrier_wait(&barrier, parity);
#endif
}

// --- Named barriers --------------------------------------------------------------------------------------------------
// "Parallel Synchronization and Communication Instructions: barrier.cta". A thread block has 16; __syncthreads uses
// number 0. All lanes of a warp execute the instruction together. `threads`, a multiple of 32, is the number of threads
// that sync or arrive per phase.

/// barrier.cta.sync: arrives at the barrier of this number and waits until `threads` threads have arrived.
__device__ __forceinline__ void barrier_sync(int number, int threads) {
#if defined(__CUDACC__)
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(number), "r"(threads) : "memory");
#else
  simt::named_barrier(number, threads, true);
#endif
}
/// barrier.cta.arrive: arrives without waiting.
__device__ __forceinline__ void barrier_arrive(int number, int threads) {
#if defined(__CUDACC__)
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(number), "r"(threads) : "memory");
#else
  simt::named_barrier(number, threads, false);
#endif
}

// --- TMA ------------------------------------------------------------------------------------------- "Data Movement
// and Conversion Instructions: Tensor copy". One thread issues the copy of a box; tensor_map.hpp defines boxes and the
// layout of their elements. `to` and `from` are multiples of 128. The two to five coordinates are those of the box's
// first element, the fastest dimension first.

#if defined(__CUDACC__)
#define WORKBOOK_TMA_LOAD(dimensions, coordinates, ...)                                               \
  WORKBOOK_HOPPER_ASM("cp.async.bulk.tensor." dimensions                                              \
                      ".shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {" coordinates \
                      "}], [%2];" ::"r"(shared_address(to)),                                          \
                      "l"(&tensor), "r"(shared_address(&barrier)), __VA_ARGS__                        \
                      : "memory")
#define WORKBOOK_TMA_STORE(dimensions, coordinates, ...)                                                     \
  WORKBOOK_HOPPER_ASM("cp.async.bulk.tensor." dimensions ".global.shared::cta.bulk_group [%0, {" coordinates \
                      "}], [%1];" ::"l"(&tensor),                                                            \
                      "r"(shared_address(from)), __VA_ARGS__                                                 \
                      : "memory")
#endif

/// cp.async.bulk.tensor to shared memory. `barrier` counts the bytes of the whole box, including elements outside the
/// tensor, which become zeros.
template <class... Coordinates>
__device__ __forceinline__ void cp_async_bulk_tensor_load(void* to, const TensorMap& tensor, Mbarrier& barrier,
                                                          Coordinates... coordinates) {
  static_assert(sizeof...(coordinates) >= 2 && sizeof...(coordinates) <= 5, "two to five coordinates");
  const int c[] = {int(coordinates)...};
#if defined(__CUDACC__)
  if constexpr (sizeof...(coordinates) == 2) {
    WORKBOOK_TMA_LOAD("2d", "%3, %4", "r"(c[0]), "r"(c[1]));
  } else if constexpr (sizeof...(coordinates) == 3) {
    WORKBOOK_TMA_LOAD("3d", "%3, %4, %5", "r"(c[0]), "r"(c[1]), "r"(c[2]));
  } else if constexpr (sizeof...(coordinates) == 4) {
    WORKBOOK_TMA_LOAD("4d", "%3, %4, %5, %6", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
  } else {
    WORKBOOK_TMA_LOAD("5d", "%3, %4, %5, %6, %7", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]));
  }
#else
  simt::bulk_load(to, tensor, &barrier, c, int(sizeof...(coordinates)));
#endif
}
/// cp.async.bulk.tensor from shared memory. Elements outside the tensor are not stored.
template <class... Coordinates>
__device__ __forceinline__ void cp_async_bulk_tensor_store(const TensorMap& tensor, const void* from,
                                                           Coordinates... coordinates) {
  static_assert(sizeof...(coordinates) >= 2 && sizeof...(coordinates) <= 5, "two to five coordinates");
  const int c[] = {int(coordinates)...};
#if defined(__CUDACC__)
  if constexpr (sizeof...(coordinates) == 2) {
    WORKBOOK_TMA_STORE("2d", "%2, %3", "r"(c[0]), "r"(c[1]));
  } else if constexpr (sizeof...(coordinates) == 3) {
    WORKBOOK_TMA_STORE("3d", "%2, %3, %4", "r"(c[0]), "r"(c[1]), "r"(c[2]));
  } else if constexpr (sizeof...(coordinates) == 4) {
    WORKBOOK_TMA_STORE("4d", "%2, %3, %4, %5", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
  } else {
    WORKBOOK_TMA_STORE("5d", "%2, %3, %4, %5, %6", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]));
  }
#else
  simt::bulk_store(tensor, from, c, int(sizeof...(coordinates)));
#endif
}
#if defined(__CUDACC__)
#undef WORKBOOK_TMA_LOAD
#undef WORKBOOK_TMA_STORE
#endif

// "Data Movement and Conversion Instructions: Bulk copy". Copies of `bytes` contiguous bytes, without a tensor map.
// Both addresses and `bytes` are multiples of 16.

/// cp.async.bulk to shared memory; `barrier` counts the bytes.
__device__ __forceinline__ void cp_async_bulk_load(void* to, const void* from, int bytes, Mbarrier& barrier) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                          shared_address(to)),
                      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier))
                      : "memory");
#else
  simt::bulk_load_line(to, from, bytes, &barrier);
#endif
}
/// cp.async.bulk from shared memory.
__device__ __forceinline__ void cp_async_bulk_store(void* to, const void* from, int bytes) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
                      "r"(shared_address(from)), "r"(bytes)
                      : "memory");
#else
  simt::bulk_store_line(to, from, bytes, false);
#endif
}
/// cp.reduce.async.bulk from shared memory: adds floats to device memory, each as an atomicAdd. The order between
/// thread blocks is unspecified, as is the order between stores of one thread without a wait between them.
__device__ __forceinline__ void cp_reduce_async_bulk_add(float* to, const float* from, int bytes) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
#else
  simt::bulk_store_line(to, from, bytes, true);
#endif
}

// Stores and reductions belong to groups of the thread that issues them.

/// cp.async.bulk.commit_group: makes this thread's stores since the last commit a group.
__device__ __forceinline__ void cp_async_bulk_commit_group() {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("cp.async.bulk.commit_group;" ::: "memory");
#else
  simt::bulk_commit();
#endif
}
/// cp.async.bulk.wait_group.read: waits until at most the newest `groups` of this thread's groups still read shared
/// memory.
template <int groups>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  static_assert(groups >= 0);
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("cp.async.bulk.wait_group.read %0;" ::"n"(groups) : "memory");
#else
  simt::bulk_wait(groups, true);
#endif
}
/// cp.async.bulk.wait_group: waits until at most the newest `groups` of this thread's groups are in flight. The writes
/// of the completed groups are then in device memory and visible to this thread.
template <int groups>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
  static_assert(groups >= 0);
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("cp.async.bulk.wait_group %0;" ::"n"(groups) : "memory");
#else
  simt::bulk_wait(groups, false);
#endif
}
/// prefetch.tensormap: prefetches the tensor map before the first copy. No effect on the simulator. `tensor` is a
/// parameter of the kernel.
__device__ __forceinline__ void prefetch_tensormap([[maybe_unused]] const TensorMap& tensor) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("prefetch.tensormap [%0];" ::"l"(&tensor) : "memory");
#endif
}
/// fence.proxy.async: makes this thread's writes to shared memory (after a barrier: also those of other threads)
/// visible to TMA and to the tensor cores. "Memory Consistency Model: Proxies".
__device__ __forceinline__ void fence_proxy_async() {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("fence.proxy.async.shared::cta;" ::: "memory");
#else
  simt::fence_proxy_async();
#endif
}

// --- Warps -----------------------------------------------------------------------------------------------------------

/// setmaxnreg: raises (inc) or lowers (dec) the number of registers per thread of this warp; inc waits until enough are
/// free. All four warps of a warpgroup execute it. Needs __launch_bounds__(threads, 1), with which a thread starts with
/// 65536 / threads registers, rounded down to a multiple of 8.
template <int registers>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0, "24 to 256, in steps of 8");
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
#else
  simt::set_registers(registers, true);
#endif
}
template <int registers>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0, "24 to 256, in steps of 8");
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
#else
  simt::set_registers(registers, false);
#endif
}

/// elect.sync: true for one lane of the warp, always the same one.
__device__ __forceinline__ bool elect_sync() {
#if defined(__CUDACC__)
  std::uint32_t elected = 0;
  WORKBOOK_HOPPER_ASM("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(elected)::"memory");
  return elected != 0;
#else
  return simt::elect_lane(0xffffffffu);
#endif
}

}  // namespace workbook::cuda

#if defined(__CUDACC__)
#undef WORKBOOK_HOPPER_ASM
#endif
