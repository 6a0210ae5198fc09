// Chapter 13: dQ, which every key has a part in. Within a block dS goes through shared memory, and each consumer forms
// half of a Q tile's dQ over all 128 keys; between blocks TMA adds the halves to a sum in device memory, in any
// order or by semaphores.
//
// Source: Shah et al. 2024 (FlashAttention-3), appendix B.1 (a warp for dQ); PTX ISA, "stmatrix",
// "cp.reduce.async.bulk".
#pragma once

#include "phases.hpp"

namespace ch13 {
namespace {

// In registers dS is transposed, in shared memory it is not: a row of smem.dS is a query, since dQ = dS K takes it as
// its left operand, K-major. A consumer's 64 keys are a section. stmatrix_x4_trans stores four parts (8, 8), each
// transposed: lane 8m + r says where column r of part m goes, 16 bytes. The parts of an operand (16 keys, 16 queries):
//   0: keys 0 to 7, queries 0 to 7       2: keys 0 to 7, queries 8 to 15
//   1: keys 8 to 15, queries 0 to 7      3: keys 8 to 15, queries 8 to 15
// Then dQ = dS K: a consumer has 64 rows, or 64 columns (T::dQ_by_rows), of it, and all 128 keys.
//
// TODO(13.6) dSᵀ of this consumer, 16 queries an instruction, swizzled. And dQ: a fence; a product for each 16 keys, of
// which the first has dQ for its output alone; a group (about 19 lines).
// STUB: template <class Element, int rows, int parts>
// STUB: __device__ __forceinline__ void store_dS(Element (&section)[rows][64],
// STUB:                                          const Fragment<Element, 4> (&dS)[parts]) {
// STUB:   WORKBOOK_TODO(13.6);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void start_dQ(typename T::HalfOfdQ& dQ,
// STUB:                                          const Tile<typename T::Element, T::Bc, T::Br>& dS,
// STUB:                                          const Tile<typename T::Element, T::d, T::Bc>& K, int consumer) {
// STUB:   WORKBOOK_TODO(13.6);
// STUB: }
// BEGIN 13.6
template <class Element, int rows, int parts>
__device__ __forceinline__ void store_dS(Element (&section)[rows][64], const Fragment<Element, 4> (&dS)[parts]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  const int query = lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
#pragma unroll
  for (int j = 0; j < parts; ++j) stmatrix_x4_trans(swizzled(section, 16 * j + query, chunk), dS[j]);
}
template <class T>
__device__ __forceinline__ void start_dQ(typename T::HalfOfdQ& dQ, const Tile<typename T::Element, T::Bc, T::Br>& dS,
                                         const Tile<typename T::Element, T::d, T::Bc>& K, int consumer) {
  using Element = typename T::Element;
  const int row = T::dQ_by_rows ? 64 * consumer : 0, section = T::dQ_by_rows ? 0 : consumer;
  wgmma_fence();
  wgmma_mma_async<Element, Major::n>(dQ, sixteen_columns(dS, row, 0), sixteen_rows(K, 0, section));
#pragma unroll
  for (int c = 1; c < T::Bc / 16; ++c)
    wgmma_mma_async<Element, Major::n>(dQ, sixteen_columns(dS, row, c), sixteen_rows(K, c, section), true);
  wgmma_commit_group();
}
// END 13.6

/// Where a Q tile's dQ begins in dQ_sum, and how many floats of it a consumer has. There they are as the threads
/// hold them: four neighbours for each thread of the consumer, then four for each thread, and so on.
template <class T>
__device__ __forceinline__ float* place_in_dQ_sum(float* dQ_sum, int head, int q_tile, int Nq) {
  return dQ_sum + (std::int64_t(head) * padded(Nq) + q_tile * T::Br) * T::d;
}
template <class T>
constexpr int half_of_dQ = T::Br* T::d / 2;

/// Whose turn it is to add to a Q tile: the number that `place` holds, which is `number` when this block's turn has
/// come. K/V tiles take semaphores from the last one that any query of the Q tile sees to the first.
struct Semaphore {
  int* counter;
  int turn;
};
template <class T>
__device__ __forceinline__ Semaphore semaphore_of(const Call& call, const Work<T>& work, int q_tile) {
  const int last_query = (q_tile + 1) * T::Br - 1;
  const int last_seen = min(call.Nk - 1, call.causal ? last_query + call.Nk - call.Nq : call.Nk - 1);
  return {call.semaphores + 1 + std::int64_t(work.head) * (padded(call.Nq) / 64) + q_tile,
          last_seen / T::Bc - work.kv_tile};
}
/// By one thread.
__device__ __forceinline__ void wait_for(const Semaphore& semaphore) {
  while (*static_cast<volatile int*>(semaphore.counter) != semaphore.turn) {
  }
  __threadfence();  // the additions of this turn come after those that the number stands for
}
/// By the same thread, when its additions are in device memory.
__device__ __forceinline__ void release(const Semaphore& semaphore) {
  cp_async_bulk_wait_group<0>();
  __threadfence();  // they come before the next number
  atomicAdd(semaphore.counter, 1);
}

// Half of a Q tile's dQ goes from a consumer to the writer, by its place in smem.dQ. Two barriers with numbers are
// the consumer's (+ its number): dQ_empty, where it waits until its place is free, and dQ_full, where the writer waits
// until it is filled. 128 threads are the consumer, 32 the writer's warp; those that need not wait arrive.
//
// The writer: at first both places are free. Then for each Q tile, of each consumer: one lane starts the addition
// and ends a group. A place is free again when its addition has read it, that is, the older group of two first. After
// the last Q tile nobody waits for a place, but TMA still has to have read it before the lane ends.
//
// TODO(13.7) Both sides of the hand-over. dQ goes to its place four elements at a time, as place_in_dQ_sum says; then
// it is shown to TMA. A turn, if there are semaphores, is around the additions of a Q tile: one lane waits for it
// before the first and ends it after the last (about 31 lines). STUB: template <class T> STUB: __device__
// __forceinline__ void hand_over_dQ(typename T::Shared& smem, const typename T::HalfOfdQ& dQ, STUB: int consumer) {
// STUB:   WORKBOOK_TODO(13.7);
// STUB: }
// STUB: template <class T>
// STUB: __device__ __forceinline__ void write_dQ(typename T::Shared& smem, const Call& call, const Work<T>& work) {
// STUB:   WORKBOOK_TODO(13.7);
// STUB: }
// BEGIN 13.7
template <class T>
__device__ __forceinline__ void hand_over_dQ(typename T::Shared& smem, const typename T::HalfOfdQ& dQ, int consumer) {
  auto* const fours = reinterpret_cast<float4*>(smem.dQ[consumer]);
  barrier_sync(dQ_empty + consumer, 128 + 32);
#pragma unroll
  for (int i = 0; i < half_of_dQ<T> / 128 / 4; ++i)
    fours[i * 128 + threadIdx.x % 128] = {dQ[4 * i], dQ[4 * i + 1], dQ[4 * i + 2], dQ[4 * i + 3]};
  fence_proxy_async();
  barrier_arrive(dQ_full + consumer, 128 + 32);
}
template <class T>
__device__ __forceinline__ void write_dQ(typename T::Shared& smem, const Call& call, const Work<T>& work) {
  const bool first_lane = threadIdx.x % 32 == 0, deterministic = call.semaphores != nullptr;
  for (int w = 0; w < T::consumers; ++w) barrier_arrive(dQ_empty + w, 128 + 32);
  for (int i = work.first; i < work.first + work.count; ++i) {
    float* const sum = place_in_dQ_sum<T>(call.dQ_sum, work.head, i, call.Nq);
    for (int w = 0; w < T::consumers; ++w) {
      barrier_sync(dQ_full + w, 128 + 32);
      if (!first_lane) continue;
      if (deterministic && w == 0) wait_for(semaphore_of(call, work, i));
      cp_reduce_async_bulk_add(sum + w * half_of_dQ<T>, smem.dQ[w], sizeof smem.dQ[w]);
      cp_async_bulk_commit_group();
    }
    for (int w = 0; w < T::consumers; ++w) {
      if (first_lane) w == 0 ? cp_async_bulk_wait_group_read<1>() : cp_async_bulk_wait_group_read<0>();
      __syncwarp();  // the place has been read
      if (i + 1 < work.first + work.count) barrier_arrive(dQ_empty + w, 128 + 32);
    }
    if (deterministic && first_lane) release(semaphore_of(call, work, i));
  }
}
// END 13.7

/// dQ = scale·dQ_sum, a block for each Q tile: through shared memory, so that a row leaves in whole lines.
template <class T>
__global__ void __launch_bounds__(256) finish_dQ(float* dQ_sum,                         // (heads, padded(Nq), d)
                                                 typename T::Element* __restrict__ dQ,  // (heads, Nq, d)
                                                 int q_tiles, int Nq, float scale) {
  using Element = typename T::Element;
  struct Rows {
    alignas(16) Element tile[T::Br][T::d + 8];  // padded by 16 bytes: eight rows begin in different banks
    SHARED_LAYOUT(Rows, tile);
  };
  auto& smem = workbook::cuda::dynamic_shared<Rows>();
  const int head = blockIdx.x / q_tiles, q_tile = blockIdx.x % q_tiles;
  const int consumer = threadIdx.x / 128, thread = threadIdx.x % 128;
  const float* const sum = place_in_dQ_sum<T>(dQ_sum, head, q_tile, Nq) + consumer * half_of_dQ<T>;
#pragma unroll
  for (int i = 0; i < half_of_dQ<T> / 128 / 4; ++i) {
    const float4 four = reinterpret_cast<const float4*>(sum)[i * 128 + thread];
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const auto [row, column] = place_in_D(thread, 4 * i + e);
      Element* const pair =
          T::dQ_by_rows ? &smem.tile[64 * consumer + row][column] : &smem.tile[row][64 * consumer + column];
      *reinterpret_cast<std::uint32_t*>(pair) =
          cvt_rn_x2<Element>((e == 0 ? four.x : four.z) * scale, (e == 0 ? four.y : four.w) * scale);
    }
  }
  __syncthreads();  // the rows are there
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
