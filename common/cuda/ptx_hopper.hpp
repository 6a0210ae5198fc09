// The part of ptx.hpp with Hopper's barriers, copies and registers, as ptx.hpp says: one function for each machine
// instruction, named as in the PTX manual. Include ptx.hpp. Here the simulator's bodies need no more than those under
// nvcc: what a barrier, a copy or a fence means is in common/simt.
#pragma once

#include "common/cuda/ptx.hpp"
#include "common/cuda/tensor_map.hpp"

// Under nvcc for older GPUs the functions with Hopper's instructions are there and end the kernel: a chapter's files
// compile for them too, so that its stage can say what it needs. A macro, since ptxas reads every asm statement that is
// compiled.
#if defined(__CUDACC__)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define WORKBOOK_HOPPER_ASM(...) __trap()
#else
#define WORKBOOK_HOPPER_ASM(...) asm volatile(__VA_ARGS__)
#endif
#endif

namespace workbook::cuda {

// --- Barriers in shared memory ---------------------------------------------------------------------------------------
// "Parallel Synchronization and Communication Instructions: mbarrier". A phase of a barrier ends when so many threads
// have arrived as mbarrier_init says, and so many bytes have come as they expect. Then the next phase begins. Phases
// have the parities 0, 1, 0, 1, …

/// A barrier: 8 bytes of shared memory, at a multiple of 8.
using Mbarrier = std::uint64_t;

/// mbarrier.init: by one thread, once. Other threads may use it after fence_mbarrier_init and a __syncthreads.
__device__ __forceinline__ void mbarrier_init(Mbarrier& barrier, int arrivals) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
                      : "memory");
#else
  simt::mbarrier_init(&barrier, arrivals);
#endif
}
/// fence.mbarrier_init: TMA sees the barriers that this thread has made.
__device__ __forceinline__ void fence_mbarrier_init() {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  simt::mbarrier_fence_init();
#endif
}
/// mbarrier.arrive: what this thread has done before is done for all who wait for this phase.
__device__ __forceinline__ void mbarrier_arrive(Mbarrier& barrier) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
#else
  simt::mbarrier_arrive(&barrier);
#endif
}
/// mbarrier.arrive.expect_tx: arrives, and the phase does not end before `bytes` more have been copied.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier& barrier, int bytes) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
                      "r"(bytes)
                      : "memory");
#else
  simt::mbarrier_arrive_expect(&barrier, bytes);
#endif
}
/// mbarrier.try_wait.parity until it succeeds: waits for the end of the phase of this parity. Does not wait if that is
/// not the running phase's parity: the phase before has ended (before the first, one of parity 1).
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

// --- Barriers with numbers -------------------------------------------------------------------------------------------
// "Parallel Synchronization and Communication Instructions: barrier.cta". A block has 16; number 0 is __syncthreads'.
// All lanes of a warp come together. `threads` counts all that sync or arrive in a phase: a multiple of 32.

/// barrier.cta.sync: waits until `threads` threads have come to the barrier of this number.
__device__ __forceinline__ void barrier_sync(int number, int threads) {
#if defined(__CUDACC__)
  asm volatile("barrier.cta.sync.aligned %0, %1;" ::"r"(number), "r"(threads) : "memory");
#else
  simt::named_barrier(number, threads, true);
#endif
}
/// barrier.cta.arrive: comes to it and does not wait.
__device__ __forceinline__ void barrier_arrive(int number, int threads) {
#if defined(__CUDACC__)
  asm volatile("barrier.cta.arrive.aligned %0, %1;" ::"r"(number), "r"(threads) : "memory");
#else
  simt::named_barrier(number, threads, false);
#endif
}

// --- TMA -------------------------------------------------------------------------------------------
// "Data Movement and Conversion Instructions: Tensor copy". One thread starts the copy of a box; tensor_map.hpp says
// what a box is and where its elements lie. `to` and `from` are multiples of 128. Coordinates are those of the box's
// first element, the fastest dimension first; there are two to five.

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

/// cp.async.bulk.tensor to shared memory. `barrier` counts the bytes of the whole box; what lies outside of the tensor
/// becomes zeros, and counts too.
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
/// cp.async.bulk.tensor from shared memory. What lies outside of the tensor is left out.
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

// "Data Movement and Conversion Instructions: Bulk copy". Lines: `bytes` that lie together on both sides, without a
// tensor map. Both addresses and `bytes` are multiples of 16.

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
/// cp.reduce.async.bulk from shared memory: adds floats to those in device memory, each addition as atomicAdd's. Which
/// block's come first nobody says, nor which come first of the stores that no wait keeps apart.
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

// Stores and additions have groups, of each thread its own.

/// cp.async.bulk.commit_group: this thread's stores since the last commit are a group.
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
/// cp.async.bulk.wait_group: waits until at most the newest `groups` of this thread's groups are under way. What the
/// others have written is in device memory, and this thread sees it.
template <int groups>
__device__ __forceinline__ void cp_async_bulk_wait_group() {
  static_assert(groups >= 0);
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("cp.async.bulk.wait_group %0;" ::"n"(groups) : "memory");
#else
  simt::bulk_wait(groups, false);
#endif
}
/// prefetch.tensormap: TMA fetches what the map says, before the first copy. The simulator has nothing to
/// fetch. `tensor` is a parameter of the kernel.
__device__ __forceinline__ void prefetch_tensormap([[maybe_unused]] const TensorMap& tensor) {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("prefetch.tensormap [%0];" ::"l"(&tensor) : "memory");
#endif
}
/// fence.proxy.async: TMA and the tensor cores see what this thread has written to shared memory (after a barrier:
/// what others have). "Memory Consistency Model: Proxies".
__device__ __forceinline__ void fence_proxy_async() {
#if defined(__CUDACC__)
  WORKBOOK_HOPPER_ASM("fence.proxy.async.shared::cta;" ::: "memory");
#else
  simt::fence_proxy_async();
#endif
}

// --- Warps -----------------------------------------------------------------------------------------------------------

/// setmaxnreg: this warp asks for registers until it has so many a thread, or gives some back. All four warps of a
/// group do. Needs __launch_bounds__(threads, 1): then a thread has 65536 / threads at first, rounded down to 8.
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

/// elect.sync: true for one lane of the warp, the same one each time.
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
