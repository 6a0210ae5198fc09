// Chapter 19: dQ, to which all keys contribute, as in chapter 13. Within a block dS goes through shared memory, and
// each consumer computes half of a Q tile's dQ over all 128 keys. Across blocks, TMA reductions add the halves to a sum
// in device memory, in no fixed order or, in deterministic mode, in the order kept by semaphores. New are the address
// of a Q tile's sum, and the order under a mask.
//
// Source: Shah et al. 2024 (FlashAttention-3), appendix B.1 (a warp for dQ); PTX ISA, "stmatrix",
// "cp.reduce.async.bulk".
#pragma once

#include "phases.hpp"

namespace ch19 {
namespace {

// dS is transposed in registers, but not in shared memory: a row of smem.dS is a query, because dQ = dS K takes it as
// its left operand, K-major. A consumer's 64 keys are one section. stmatrix_x4_trans stores four matrices (8, 8), each
// transposed: lane 8m + r gives the address of 16 bytes for column r of matrix m. The matrices of an operand (16 keys,
// 16 queries):
//   0: keys 0 to 7, queries 0 to 7       2: keys 0 to 7, queries 8 to 15
//   1: keys 8 to 15, queries 0 to 7      3: keys 8 to 15, queries 8 to 15
//
// start_dQ starts this consumer's half of dQ = dS K over all 128 keys. The half is 64 rows (T::dQ_by_rows) or 64
// columns.
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

/// The floats in a consumer's half of a Q tile's dQ. In dQ_sum they are in the order in which the consumer's threads
/// hold them: a float4 of each of the 128 threads, then the next float4 of each thread, and so on.
template <class T>
constexpr int dQ_half_size = T::Br* T::d / 2;

/// The semaphore of a Q tile: `rank` is the value of *counter that this block's K/V tile waits for. It is 0 for the
/// last K/V tile with an unmasked pair, 1 for the one before it, and so on.
struct Semaphore {
  int* counter;
  int rank;
};

// TODO(19.6) address_in_dQ_sum: the address of a step's first padded row in dQ_sum (B·H, padded, d).
// semaphore_of: the semaphore of its Q tile. One counter per 64 padded rows follows the ticket counter. `rank` is the
// number of K/V tiles that add before this one. The first of them contains the last key that any query of the Q tile
// attends to (about 8 lines).
// BEGIN 19.6
template <class T>
__device__ __forceinline__ float* address_in_dQ_sum(const Call& call, const WorkTile<T>& work,
                                                    const Step& step) {
  WORKBOOK_TODO(19.6);
}
template <class T>
__device__ __forceinline__ Semaphore semaphore_of(const Call& call, const WorkTile<T>& work,
                                                  const Step& step) {
  WORKBOOK_TODO(19.6);
}
// END 19.6
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
  if (work.steps == 0) return;
  for (int w = 0; w < T::consumers; ++w) barrier_arrive(dQ_empty + w, 128 + 32);
  Step step = work.first_step();
  for (int i = 0; i < work.steps; ++i) {
    float* const sum = address_in_dQ_sum(call, work, step);
    for (int w = 0; w < T::consumers; ++w) {
      barrier_sync(dQ_full + w, 128 + 32);
      if (!first_lane) continue;
      if (deterministic && w == 0) wait_for(semaphore_of(call, work, step));
      cp_reduce_async_bulk_add(sum + w * dQ_half_size<T>, smem.dQ[w], sizeof smem.dQ[w]);
      cp_async_bulk_commit_group();
    }
    for (int w = 0; w < T::consumers; ++w) {
      if (first_lane) w == 0 ? cp_async_bulk_wait_group_read<1>() : cp_async_bulk_wait_group_read<0>();
      __syncwarp();  // the buffer has been read
      if (i + 1 < work.steps) barrier_arrive(dQ_empty + w, 128 + 32);
    }
    if (deterministic && first_lane) release(semaphore_of(call, work, step));
    work.advance(step);
  }
}

/// dQ = scale·dQ_sum, one block per Q tile of padded rows. It goes through shared memory, so that the stores to a row
/// are coalesced.
template <class T>
__global__ void __launch_bounds__(256) finish_dQ(const float* __restrict__ dQ_sum,      // (B·H, padded, d)
                                                 typename T::Element* __restrict__ dQ,  // (B·H, Nq, d)
                                                 const int* __restrict__ starts, int q_tiles, int Nq, float scale) {
  using Element = typename T::Element;
  struct Rows {
    alignas(16) Element tile[T::Br][T::d + 8];  // padded by 16 bytes: eight consecutive rows begin in different banks
    SHARED_LAYOUT(Rows, tile);
  };
  auto& smem = workbook::cuda::dynamic_shared<Rows>();
  const auto [sequence, first_row] = row_of(starts, Nq, int(blockIdx.x) % q_tiles * T::Br);
  if (first_row >= sequence.length) return;  // the whole block: all of its rows are padding
  const std::int64_t first = std::int64_t(blockIdx.x) / q_tiles * Nq + sequence.first + first_row;  // its row of dQ
  const int consumer = threadIdx.x / 128, thread = threadIdx.x % 128;
  const float* const sum = dQ_sum + std::int64_t(blockIdx.x) * T::Br * T::d + consumer * dQ_half_size<T>;
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
    const int row = i / chunks;
    if (first_row + row < sequence.length)
      reinterpret_cast<uint4*>(dQ)[(first + row) * chunks + i % chunks] =
          *reinterpret_cast<const uint4*>(&smem.tile[row][i % chunks * 8]);
  }
}

}  // namespace
}  // namespace ch19
