// Chapter 15, backward, given: the row statistics, and the sum of dQ, to which every K/V tile adds. Chapter 9 builds
// both.
//
// Source: Dao 2023 (FlashAttention-2), Algorithm 2; Dao et al. 2022, appendix B.2: D = rowsum(dO∘O).
#pragma once

#include "gradient_tiles.hpp"

namespace ch15 {
namespace {

// dQ_sum and the row statistics have padded rows: the rows of a head, or of each packed sequence, are padded to a
// multiple of 64, which is a whole number of Q tiles of any size. row_of(padded) is the row of a head that corresponds
// to padded row `padded`; for padding it is Nq or more.

/// The rows of a head that are not packed.
struct RowOfHead {
  __device__ int operator()(int padded) const { return padded; }
};

/// The statistics of each padded row (`padded` per head, `count` in all): LSE·log2(e), or +inf where P must be 0 (no
/// unmasked key, or padding); and D = rowsum(dO∘O) - dLSE. d / 8 adjacent lanes per row. Clears dQ_sum, and semaphores
/// if given.
template <int d, class RowOf = RowOfHead>
__global__ void prepare_rows(const Element* __restrict__ O,   // (B·H, Nq, d)
                             const Element* __restrict__ dO,  // (B·H, Nq, d)
                             const float* __restrict__ lse,   // (B·H, Nq), natural logarithm; -inf: no unmasked key
                             const float* __restrict__ dlse,  // (B·H, Nq), or nullptr: 0
                             float2* __restrict__ row_stats,  // (B·H, padded)
                             float* __restrict__ dQ_sum,      // (B·H, padded, d)
                             int* __restrict__ semaphores,    // (1 + B·H·padded / 4), or nullptr
                             RowOf row_of, std::int64_t count, int padded, int Nq) {
  constexpr int lanes = d / 8;
  const std::int64_t thread = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, padded_row = thread / lanes;
  if (padded_row >= count) return;  // whole warps: count is a multiple of 64
  const int query = row_of(padded_row % padded), lane = threadIdx.x % lanes;
  const std::int64_t row = padded_row / padded * Nq + query;
  reinterpret_cast<float4*>(dQ_sum)[2 * thread] = reinterpret_cast<float4*>(dQ_sum)[2 * thread + 1] = {0, 0, 0, 0};
  if (semaphores != nullptr && lane == 0 && padded_row % 4 == 0) semaphores[1 + padded_row / 4] = 0;
  if (semaphores != nullptr && thread == 0) semaphores[0] = 0;
  float D = 0;
  if (query < Nq) {
    const uint4 O_vector = reinterpret_cast<const uint4*>(O)[row * lanes + lane];
    const uint4 dO_vector = reinterpret_cast<const uint4*>(dO)[row * lanes + lane];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      D += float(reinterpret_cast<const Element*>(&O_vector)[i]) *
           float(reinterpret_cast<const Element*>(&dO_vector)[i]);
  }
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) D += __shfl_xor_sync(0xffffffff, D, step);
  if (lane != 0) return;
  if (query < Nq && dlse != nullptr) D -= dlse[row];
  row_stats[padded_row] = {query < Nq && lse[row] != -INFINITY ? lse[row] * log2_e : INFINITY, D};
}

/// The address in dQ_sum of this lane's element e of part `column_part` (16, 8) of a row tile. One addition of a warp
/// covers one 128-byte line.
template <int d>
__device__ __forceinline__ float* address_in_sum(float* dQ_sum, std::int64_t row_tile, int column_part, int e) {
  return dQ_sum + ((row_tile * (d / 8) + column_part) * 4 + e) * 32 + threadIdx.x % 32;
}
/// A warp's piece of dS K, (32, Bc), (Bc, 8·parts) -> (32, 8·parts), from this row and column of the Q tile on. A row
/// of smem.dS[buffer] is a key, so an operand A (16, 16) is loaded transposed.
template <int parts, class T>
__device__ __forceinline__ void multiply_dS_K(Result<parts>& dQ, GradientShared<T>& smem, int buffer, int row,
                                              int column) {
  const int lane = threadIdx.x % 32, key_of_lane = lane / 16 * 8 + lane % 8, chunk = row / 8 + lane / 8 % 2;
  clear<parts>(dQ);
#pragma unroll
  for (int key = 0; key < T::Bc; key += 16) {
    Operand upper, lower, right;
    workbook::cuda::ldmatrix_x4_trans(upper, swizzled(smem.dS[buffer], key + key_of_lane, chunk));
    workbook::cuda::ldmatrix_x4_trans(lower, swizzled(smem.dS[buffer], key + key_of_lane, chunk + 2));
#pragma unroll
    for (int j = 0; j < parts / 2; ++j) {
      load_B_by_rows(right, smem.K, key, column + 16 * j);
      multiply_16<parts>(dQ, j, upper, lower, right);
    }
  }
}

/// Orders the additions to a warp's piece of dQ (deterministic mode): this warp adds when *counter equals `rank`. Empty
/// otherwise.
template <bool deterministic>
struct Semaphore {};
template <>
struct Semaphore<true> {
  int* counter;
  int rank;
};

/// Reads the counter from device memory. `volatile` makes the compiler read it every time.
__device__ __forceinline__ int read_counter(const Semaphore<true>& semaphore) {
  return *static_cast<volatile int*>(semaphore.counter);
}

/// Waits until *counter equals `rank`: then all earlier additions are visible. `seen` is a value read earlier. release:
/// makes this warp's additions visible, then increments the counter.
__device__ __forceinline__ void wait_for(const Semaphore<true>& semaphore, int seen) {
  if (threadIdx.x % 32 == 0) {
    while (seen != semaphore.rank) seen = read_counter(semaphore);
    __threadfence();  // this warp's additions come after those that the counter stands for
  }
  __syncwarp();  // no lane adds before lane 0 has seen the counter reach `rank`
}
__device__ __forceinline__ void release(const Semaphore<true>& semaphore) {
  __threadfence();  // this lane's additions are visible before the increment
  __syncwarp();     // and so are the other lanes'
  if (threadIdx.x % 32 == 0) atomicAdd(semaphore.counter, 1);
}

/// dQ += dS K: (Br, Bc), (Bc, d) -> (Br, d). Each warp computes 32 rows and T::dQ_columns columns. dSᵀ is in
/// smem.dS[buffer]; dQ_sum is at this Q tile.
template <class T, bool deterministic>
__device__ __forceinline__ void add_dQ(float* dQ_sum, GradientShared<T>& smem, int buffer,
                                       const Semaphore<deterministic>& semaphore) {
  constexpr int parts = T::dQ_columns / 8, row_groups = T::Br / 32;
  const int warp = threadIdx.x / 32, row = warp % row_groups * 32, column = warp / row_groups * T::dQ_columns;
  [[maybe_unused]] int seen = 0;
  if constexpr (deterministic) seen = read_counter(semaphore);  // the latency overlaps with the matmul
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

/// dQ = scale·dQ_sum, one warp per part (16, 8).
template <int d, class RowOf = RowOfHead>
__global__ void write_dQ(float* dQ_sum,             // (B·H, padded, d), see address_in_sum
                         Element* __restrict__ dQ,  // (B·H, Nq, d)
                         RowOf row_of, std::int64_t parts, int padded, int Nq, float scale) {
  const std::int64_t part = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32, row_tile = part / (d / 8);
  if (part >= parts) return;
  const int tiles_of_head = padded / 16, lane = threadIdx.x % 32, column_part = part % (d / 8);
  const std::int64_t head = row_tile / tiles_of_head;
#pragma unroll
  for (int e = 0; e < 4; e += 2) {
    const auto [row, column] = position_in_part(lane, e);
    const int query = row_of(row_tile % tiles_of_head * 16 + row);
    if (query < Nq)
      *reinterpret_cast<std::uint32_t*>(dQ + (head * Nq + query) * d + 8 * column_part + column) =
          cvt_rn_x2<Element>(*address_in_sum<d>(dQ_sum, row_tile, column_part, e) * scale,
                             *address_in_sum<d>(dQ_sum, row_tile, column_part, e + 1) * scale);
  }
}

}  // namespace
}  // namespace ch15
