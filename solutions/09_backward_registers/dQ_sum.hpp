// Chapter 9: accumulation of dQ in device memory. Every K/V tile adds its contribution to dQ_sum, in any order or, in
// deterministic mode, in the order of a semaphore; write_dQ converts the sum to dQ.
//
// Source: Dao 2023 (FlashAttention-2), Algorithm 2 and section 3.2 ("we use atomic adds to communicate between
// different thread blocks"). Test it: ./workbook test 9.7
#pragma once

#include "phases.hpp"

namespace ch09 {
namespace {

/// The rows of a head in dQ_sum and in row_stats: Nq, padded to whole Q tiles of any size.
__host__ __device__ __forceinline__ int padded(int Nq) {
  return (Nq + 63) / 64 * 64;
}

// The layout of dQ_sum. Every element is accessed by one lane index only, always through address_in_sum. So the order
// is free, and it is chosen for coalescing: the 32 lanes of one element of a Part fill a line of 128 bytes.
//
// dS K of one warp: (32, Bc), (Bc, 8·parts) -> (32, 8·parts), for the 32 queries from `row` and the columns from
// `column` on. smem.dS[buffer] holds dSᵀ, with one row per key: it is loaded transposed.
//
// TODO(9.7) address_in_sum: the address of this lane's element e of Part `column_part` (of d / 8) of row tile
// `row_tile`. multiply_dS_K: for each 16 keys, load both row tiles of dS once by ldmatrix_x4_trans and each 16 columns
// of K once, and multiply (about 14 lines).
// STUB: template <int d>
// STUB: __device__ __forceinline__ float* address_in_sum(float* dQ_sum, std::int64_t row_tile, int column_part,
// STUB:                                                  int e) {
// STUB:   WORKBOOK_TODO(9.7);
// STUB: }
// STUB: template <int parts, class T>
// STUB: __device__ __forceinline__ void multiply_dS_K(Result<parts>& dQ, Shared<T>& smem, int buffer, int row,
// STUB:                                               int column) {
// STUB:   WORKBOOK_TODO(9.7);
// STUB: }
// BEGIN 9.7
template <int d>
__device__ __forceinline__ float* address_in_sum(float* dQ_sum, std::int64_t row_tile, int column_part, int e) {
  return dQ_sum + ((row_tile * (d / 8) + column_part) * 4 + e) * 32 + threadIdx.x % 32;
}
template <int parts, class T>
__device__ __forceinline__ void multiply_dS_K(Result<parts>& dQ, Shared<T>& smem, int buffer, int row, int column) {
  const int lane = threadIdx.x % 32, key_of_lane = lane / 16 * 8 + lane % 8, chunk = row / 8 + lane / 8 % 2;
  clear<parts>(dQ);
#pragma unroll
  for (int key = 0; key < T::Bc; key += 16) {
    Operand upper, lower, right;
    ldmatrix_x4_trans(upper, swizzled(smem.dS[buffer], key + key_of_lane, chunk));
    ldmatrix_x4_trans(lower, swizzled(smem.dS[buffer], key + key_of_lane, chunk + 2));
#pragma unroll
    for (int j = 0; j < parts / 2; ++j) {
      load_B_by_rows(right, smem.K, key, column + 16 * j);
      multiply_16<parts>(dQ, j, upper, lower, right);
    }
  }
}
// END 9.7

/// The order of the additions to one warp's piece of a Q tile: a warp may add when *counter equals rank. Empty if
/// not deterministic.
template <bool deterministic>
struct Semaphore {};
template <>
struct Semaphore<true> {
  int* counter;
  int rank;
};

/// The counter's current value. `volatile` makes the compiler load it from memory in every call.
__device__ __forceinline__ int read_counter(const Semaphore<true>& semaphore) {
  return *static_cast<volatile int*>(semaphore.counter);
}

// wait_for returns when the counter equals this warp's rank; then all earlier additions are visible. `seen` is the
// value that this lane has read before the matmul. release increments the counter once all additions of this warp are
// visible. __threadfence() orders, for all threads of the GPU, the accesses of the lane that executes it; __syncwarp()
// synchronises the lanes of a warp.
//
// TODO(9.8) wait_for: lane 0 polls the counter, and the other lanes wait for it. release: lane 0 adds 1 to the
// counter (about 8 lines).
// STUB: __device__ __forceinline__ void wait_for(const Semaphore<true>& semaphore, int seen) {
// STUB:   WORKBOOK_TODO(9.8);
// STUB: }
// STUB: __device__ __forceinline__ void release(const Semaphore<true>& semaphore) {
// STUB:   WORKBOOK_TODO(9.8);
// STUB: }
// BEGIN 9.8
__device__ __forceinline__ void wait_for(const Semaphore<true>& semaphore, int seen) {
  if (threadIdx.x % 32 == 0) {
    while (seen != semaphore.rank) seen = read_counter(semaphore);
    __threadfence();  // this warp's additions come after the read of the counter
  }
  __syncwarp();  // no lane adds before the counter equals rank
}
__device__ __forceinline__ void release(const Semaphore<true>& semaphore) {
  __threadfence();  // this lane's additions come before the increment
  __syncwarp();     // and so do the additions of all other lanes
  if (threadIdx.x % 32 == 0) atomicAdd(semaphore.counter, 1);
}
// END 9.8

/// dQ += dS K: (Br, Bc), (Bc, d) -> (Br, d), of which each warp computes 32 rows and T::dQ_columns columns. dSᵀ is in
/// smem.dS[buffer]. dQ_sum: the sum of this Q tile.
template <class T, bool deterministic>
__device__ __forceinline__ void add_dQ(float* dQ_sum, Shared<T>& smem, int buffer,
                                       const Semaphore<deterministic>& semaphore) {
  constexpr int parts = T::dQ_columns / 8, row_groups = T::Br / 32;
  const int warp = threadIdx.x / 32, row = warp % row_groups * 32, column = warp / row_groups * T::dQ_columns;
  [[maybe_unused]] int seen = 0;
  if constexpr (deterministic) seen = read_counter(semaphore);  // the load's latency overlaps the matmul
  Result<parts> dQ;
  multiply_dS_K<parts>(dQ, smem, buffer, row, column);
  if constexpr (deterministic) wait_for(semaphore, seen);
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < parts; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) atomicAdd(address_in_sum<T::d>(dQ_sum, row / 16 + i, column / 8 + j, e), dQ[i][j][e]);
  if constexpr (deterministic) release(semaphore);
}

/// dQ = scale·dQ_sum, one warp per Part (16, 8).
template <int d>
__global__ void write_dQ(float* dQ_sum,             // (heads, padded(Nq), d), see address_in_sum
                         Element* __restrict__ dQ,  // (heads, Nq, d)
                         std::int64_t parts, int Nq, float scale) {
  const std::int64_t part = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32, row_tile = part / (d / 8);
  if (part >= parts) return;
  const int row_tiles = padded(Nq) / 16, lane = threadIdx.x % 32, column_part = part % (d / 8);
  const std::int64_t head = row_tile / row_tiles;
#pragma unroll
  for (int e = 0; e < 4; e += 2) {
    const auto [row, column] = position_in_part(lane, e);
    const int query = row_tile % row_tiles * 16 + row;
    if (query < Nq)
      *reinterpret_cast<std::uint32_t*>(dQ + (head * Nq + query) * d + 8 * column_part + column) =
          cvt_rn_x2<Element>(*address_in_sum<d>(dQ_sum, row_tile, column_part, e) * scale,
                             *address_in_sum<d>(dQ_sum, row_tile, column_part, e + 1) * scale);
  }
}

}  // namespace
}  // namespace ch09
