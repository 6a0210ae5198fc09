// Chapter 13: dQ, to which all keys contribute. Within a block dS goes through shared memory, and each consumer
// computes half of a Q tile's dQ over all 128 keys. Across blocks, TMA reductions add the halves to a sum in device
// memory, in no fixed order or, in deterministic mode, in the order kept by semaphores.
//
// Source: Shah et al. 2024 (FlashAttention-3), appendix B.1 (a warp for dQ); PTX ISA, "stmatrix",
// "cp.reduce.async.bulk".
#pragma once

#include "phases.hpp"

namespace ch13 {
namespace {

// dS is transposed in registers, but not in shared memory: a row of smem.dS is a query, because dQ = dS K takes it as
// its left operand, K-major. A consumer's 64 keys are one section. stmatrix_x4_trans stores four matrices (8, 8), each
// transposed: lane 8m + r gives the address of 16 bytes for column r of matrix m. The matrices of an operand (16 keys,
// 16 queries):
//   0: keys 0 to 7, queries 0 to 7       2: keys 0 to 7, queries 8 to 15
//   1: keys 8 to 15, queries 0 to 7      3: keys 8 to 15, queries 8 to 15
//
// TODO(13.6) store_dS: stores this consumer's dSᵀ, one stmatrix per 16 queries, swizzled. start_dQ: starts this
// consumer's half of dQ = dS K over all 128 keys. The half is 64 rows (T::dQ_by_rows) or 64 columns. A fence; one MMA
// per 16 keys, of which the first only writes dQ; then commit the wgmma group (about 19 lines).
// STUB: template <class Element, int rows, int operands>
// STUB: __device__ __forceinline__ void store_dS(Element (&section)[rows][64],
// STUB:                                          const Fragment<Element, 4> (&dS)[operands]) {
// STUB:   WORKBOOK_TODO(13.6);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void start_dQ(typename T::DQHalf& dQ,
// STUB:                                          const Tile<typename T::Element, T::Bc, T::Br>& dS,
// STUB:                                          const Tile<typename T::Element, T::d, T::Bc>& K, int consumer) {
// STUB:   WORKBOOK_TODO(13.6);
// STUB: }
// BEGIN 13.6
template <class Element, int rows, int operands>
__device__ __forceinline__ void store_dS(Element (&section)[rows][64], const Fragment<Element, 4> (&dS)[operands]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const int query = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
#pragma unroll
  for (int j = 0; j < operands; ++j) stmatrix_x4_trans(swizzled(section, 16 * j + query, chunk), dS[j]);
}
template <class T>
__device__ __forceinline__ void start_dQ(typename T::DQHalf& dQ, const Tile<typename T::Element, T::Bc, T::Br>& dS,
                                         const Tile<typename T::Element, T::d, T::Bc>& K, int consumer) {
  using Element = typename T::Element;
  const int row = T::dQ_by_rows ? 64 * consumer : 0, section = T::dQ_by_rows ? 0 : consumer;
  wgmma_fence();
  wgmma_mma_async<Element, Major::n>(dQ, K_major_descriptor(dS, row, 0), MN_major_descriptor(K, 0, section));
#pragma unroll
  for (int c = 1; c < T::Bc / 16; ++c)
    wgmma_mma_async<Element, Major::n>(dQ, K_major_descriptor(dS, row, c), MN_major_descriptor(K, c, section), true);
  wgmma_commit_group();
}
// END 13.6

/// The address of a Q tile's dQ in dQ_sum. A consumer's half has dQ_half_size<T> floats, in the order in which its
/// threads hold them: a float4 of each of the 128 threads, then the next float4 of each thread, and so on.
template <class T>
__device__ __forceinline__ float* address_in_dQ_sum(float* dQ_sum, int head, int q_tile, int Nq) {
  return dQ_sum + (std::int64_t(head) * padded(Nq) + q_tile * T::Br) * T::d;
}
template <class T>
constexpr int dQ_half_size = T::Br* T::d / 2;

/// The semaphore of a Q tile: `rank` is the value of *counter that this block's K/V tile waits for. It is 0 for the
/// last K/V tile with an unmasked pair, 1 for the one before it, and so on.
struct Semaphore {
  int* counter;
  int rank;
};
template <class T>
__device__ __forceinline__ Semaphore semaphore_of(const Call& call, const WorkTile<T>& work, int q_tile) {
  const int last_query = (q_tile + 1) * T::Br - 1;
  const int last_seen = min(call.Nk - 1, call.causal ? last_query + call.Nk - call.Nq : call.Nk - 1);
  return {call.semaphores + 1 + std::int64_t(work.head) * (padded(call.Nq) / 64) + q_tile,
          last_seen / T::Bc - work.kv_tile};
}
/// Called by one thread: waits until the counter has the semaphore value of this K/V tile.
__device__ __forceinline__ void wait_for(const Semaphore& semaphore) {
  while (*static_cast<volatile int*>(semaphore.counter) != semaphore.rank) {
  }
  __threadfence();  // the following additions are ordered after those of the earlier K/V tiles
}
/// Called by the same thread: waits until its additions are complete, then increments the counter for the next K/V
/// tile.
__device__ __forceinline__ void release(const Semaphore& semaphore) {
  cp_async_bulk_wait_group<0>();
  __threadfence();  // the additions become visible before the new counter
  atomicAdd(semaphore.counter, 1);
}

// Each consumer hands its half of dQ to the writer in its buffer smem.dQ[consumer], with two named barriers of 160
// threads: the consumer's 128 and the writer warp's 32. The side that waits syncs, the other side arrives.
//   dQ_empty + consumer: the consumer waits until its buffer is free
//   dQ_full + consumer: the writer waits until the buffer is full
//
// The writer: at the start both buffers are free. Then for each Q tile, and each consumer, one lane starts the addition
// and commits a group. A buffer is free when its addition has read it; the older of the two groups finishes reading
// first. After the last Q tile no consumer waits for a buffer, but the lane must not exit before TMA has read both.
//
// TODO(13.7) hand_over_dQ: wait for the buffer, write dQ to it as float4s in the order of address_in_dQ_sum, make it
// visible to TMA, signal the writer. write_dQ: the writer's loop. In deterministic mode one lane waits for the
// semaphore before the first addition of a Q tile, and releases it after the last (about 31 lines).
// STUB: template <class T>
// STUB: __device__ __forceinline__ void hand_over_dQ(typename T::Shared& smem, const typename T::DQHalf& dQ,
// STUB:                                              int consumer) {
// STUB:   WORKBOOK_TODO(13.7);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void write_dQ(typename T::Shared& smem, const Call& call, const WorkTile<T>& work) {
// STUB:   WORKBOOK_TODO(13.7);
// STUB: }
// BEGIN 13.7
template <class T>
__device__ __forceinline__ void hand_over_dQ(typename T::Shared& smem, const typename T::DQHalf& dQ, int consumer) {
  auto* const vectors = reinterpret_cast<float4*>(smem.dQ[consumer]);
  barrier_sync(dQ_empty + consumer, 128 + 32);
#pragma unroll
  for (int i = 0; i < dQ_half_size<T> / 128 / 4; ++i)
    vectors[i * 128 + threadIdx.x % 128] = {dQ[4 * i], dQ[4 * i + 1], dQ[4 * i + 2], dQ[4 * i + 3]};
  fence_proxy_async();
  barrier_arrive(dQ_full + consumer, 128 + 32);
}
template <class T>
__device__ __forceinline__ void write_dQ(typename T::Shared& smem, const Call& call, const WorkTile<T>& work) {
  const bool first_lane = threadIdx.x % 32 == 0, deterministic = call.semaphores != nullptr;
  for (int w = 0; w < T::consumers; ++w) barrier_arrive(dQ_empty + w, 128 + 32);
  for (int i = work.q_begin; i < work.q_begin + work.q_count; ++i) {
    float* const sum = address_in_dQ_sum<T>(call.dQ_sum, work.head, i, call.Nq);
    for (int w = 0; w < T::consumers; ++w) {
      barrier_sync(dQ_full + w, 128 + 32);
      if (!first_lane) continue;
      if (deterministic && w == 0) wait_for(semaphore_of(call, work, i));
      cp_reduce_async_bulk_add(sum + w * dQ_half_size<T>, smem.dQ[w], sizeof smem.dQ[w]);
      cp_async_bulk_commit_group();
    }
    for (int w = 0; w < T::consumers; ++w) {
      if (first_lane) w == 0 ? cp_async_bulk_wait_group_read<1>() : cp_async_bulk_wait_group_read<0>();
      __syncwarp();  // the buffer has been read
      if (i + 1 < work.q_begin + work.q_count) barrier_arrive(dQ_empty + w, 128 + 32);
    }
    if (deterministic && first_lane) release(semaphore_of(call, work, i));
  }
}
// END 13.7

/// dQ = scale·dQ_sum, one block per Q tile. It goes through shared memory, so that the stores to a row are coalesced.
template <class T>
__global__ void __launch_bounds__(256) finish_dQ(float* dQ_sum,                         // (heads, padded(Nq), d)
                                                 typename T::Element* __restrict__ dQ,  // (heads, Nq, d)
                                                 int q_tiles, int Nq, float scale) {
  using Element = typename T::Element;
  struct Rows {
    alignas(16) Element tile[T::Br][T::d + 8];  // padded by 16 bytes: eight consecutive rows begin in different banks
    SHARED_LAYOUT(Rows, tile);
  };
  auto& smem = workbook::cuda::dynamic_shared<Rows>();
  const int head = blockIdx.x / q_tiles, q_tile = blockIdx.x % q_tiles;
  const int consumer = threadIdx.x / 128, thread = threadIdx.x % 128;
  const float* const sum = address_in_dQ_sum<T>(dQ_sum, head, q_tile, Nq) + consumer * dQ_half_size<T>;
#pragma unroll
  for (int i = 0; i < dQ_half_size<T> / 128 / 4; ++i) {
    const float4 vector = reinterpret_cast<const float4*>(sum)[i * 128 + thread];
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const auto [row, column] = coordinates_in_D(thread, 4 * i + e);
      Element* const target =
          T::dQ_by_rows ? &smem.tile[64 * consumer + row][column] : &smem.tile[row][64 * consumer + column];
      *reinterpret_cast<std::uint32_t*>(target) =
          cvt_rn_x2<Element>((e == 0 ? vector.x : vector.z) * scale, (e == 0 ? vector.y : vector.w) * scale);
    }
  }
  __syncthreads();  // all rows are written
  constexpr int chunks = T::d / 8;
#pragma unroll
  for (int i = threadIdx.x; i < T::Br * chunks; i += 256) {
    const int row = i / chunks, query = q_tile * T::Br + row;
    if (query < Nq)
      reinterpret_cast<uint4*>(dQ)[(std::int64_t(head) * Nq + query) * chunks + i % chunks] =
          *reinterpret_cast<const uint4*>(&smem.tile[row][i % chunks * 8]);
  }
}

}  // namespace
}  // namespace ch13
