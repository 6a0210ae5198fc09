// Chapter 15, backward, given: what each query brings, and a Q tile's dQ, which every K/V tile has a part of.
// Chapter 9 builds both. What is new: each packed sequence is filled up to whole Q tiles by itself.
//
// Source: Dao 2023 (FlashAttention-2), Algorithm 2; Dao et al. 2022, appendix B.2: D = rowsum(dO∘O).
#pragma once

#include "asked_for.hpp"
#include "gradient_phases.hpp"

namespace ch15 {
namespace {

// A head's rows in dQ_sum and in what the queries bring are padded rows: those of each sequence, filled up to a
// multiple of 64, which are whole Q tiles of any size.

/// The row of a head that its padded row number `padded` is; -1 if it only fills up.
__device__ __forceinline__ int row_of(const int* __restrict__ starts, int Nq, int padded) {
  if (starts == nullptr) return padded < Nq ? padded : -1;
  const Sequence own = sequence_of(starts, padded / 64, 64);
  const int row = own.tile * 64 + padded % 64;
  return row < own.length ? own.first + row : -1;
}
/// How many padded rows are before the sequence that begins at row `first`.
__device__ __forceinline__ int padded_before(const int* __restrict__ starts, int first) {
  int rows = 0;
  for (int s = 0; starts != nullptr && starts[s] < first; ++s) rows += (starts[s + 1] - starts[s] + 63) / 64 * 64;
  return rows;
}

/// For each padded row, of `padded` a head: LSE·log2(e), or +inf if its P is to be 0, as for rows that see nothing or
/// do not exist; and D = rowsum(dO∘O). d / 8 neighbouring lanes a row. Clears dQ_sum and turns, if there are any.
template <int d>
__global__ void prepare_rows(const Element* __restrict__ O,   // (B·H, Nq, d)
                             const Element* __restrict__ dO,  // (B·H, Nq, d)
                             const float* __restrict__ lse,   // (B·H, Nq), natural logarithm, -inf: sees nothing
                             float2* __restrict__ rows,       // (B·H, padded)
                             float* __restrict__ dQ_sum,      // (B·H, padded, d)
                             int* __restrict__ turns,         // (1 + B·H·padded / 4), or nullptr
                             const int* __restrict__ starts, std::int64_t count, int padded, int Nq) {
  constexpr int lanes = d / 8;
  const std::int64_t thread = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, place = thread / lanes;
  if (place >= count) return;  // whole warps: count is a multiple of 64
  const int query = row_of(starts, Nq, place % padded), lane = threadIdx.x % lanes;
  const std::int64_t row = place / padded * Nq + query;
  reinterpret_cast<float4*>(dQ_sum)[2 * thread] = reinterpret_cast<float4*>(dQ_sum)[2 * thread + 1] = {0, 0, 0, 0};
  if (turns != nullptr && lane == 0 && place % 4 == 0) turns[1 + place / 4] = 0;
  if (turns != nullptr && thread == 0) turns[0] = 0;
  float D = 0;
  if (query >= 0) {
    const uint4 O_eight = reinterpret_cast<const uint4*>(O)[row * lanes + lane];
    const uint4 dO_eight = reinterpret_cast<const uint4*>(dO)[row * lanes + lane];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      D += float(reinterpret_cast<const Element*>(&O_eight)[i]) * float(reinterpret_cast<const Element*>(&dO_eight)[i]);
  }
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) D += __shfl_xor_sync(0xffffffff, D, step);
  if (lane != 0) return;
  rows[place] = {query >= 0 && lse[row] != -INFINITY ? lse[row] * log2_e : INFINITY, D};
}

/// Where in dQ_sum a lane has element e of part (16, 8) number `column_part` of 16 rows: an addition of a warp fills
/// one line of 128 bytes.
template <int d>
__device__ __forceinline__ float* place_in_sum(float* dQ_sum, std::int64_t row_tile, int column_part, int e) {
  return dQ_sum + ((row_tile * (d / 8) + column_part) * 4 + e) * 32 + threadIdx.x % 32;
}
/// A warp's piece of dS K, (32, Bc), (Bc, 8·parts) -> (32, 8·parts), from this row and column of the Q tile on. In
/// smem.dS[place] a row is a key: a left operand (16, 16) is a part of it, transposed.
template <int parts, class T>
__device__ __forceinline__ void multiply_dS_K(Result<parts>& dQ, GradientShared<T>& smem, int place, int row,
                                              int column) {
  const int lane = threadIdx.x % 32, key_of_lane = lane / 16 * 8 + lane % 8, chunk = row / 8 + lane / 8 % 2;
  clear<parts>(dQ);
#pragma unroll
  for (int key = 0; key < T::Bc; key += 16) {
    Operand upper, lower, right;
    workbook::cuda::ldmatrix_x4_trans(upper, swizzled(smem.dS[place], key + key_of_lane, chunk));
    workbook::cuda::ldmatrix_x4_trans(lower, swizzled(smem.dS[place], key + key_of_lane, chunk + 2));
#pragma unroll
    for (int j = 0; j < parts / 2; ++j) {
      load_B_by_rows(right, smem.K, key, column + 16 * j);
      multiply_16<parts>(dQ, j, upper, lower, right);
    }
  }
}

/// Whose turn it is to add to a warp's part of a Q tile: the number that `place` holds, which is `number` when this
/// warp's has come. Without turns there is nothing to know.
template <bool in_turns>
struct Turn {};
template <>
struct Turn<true> {
  int* place;
  int number;
};

/// The number at a turn's place, from device memory: `volatile` keeps the compiler from reading it once and for all.
__device__ __forceinline__ int look(const Turn<true>& turn) {
  return *static_cast<volatile int*>(turn.place);
}

/// A warp waits until its turn has come: then what the warps before have added is there. `seen` is what the place held
/// a while ago. It ends its turn when its own additions are there for all who see the next number.
__device__ __forceinline__ void wait_for(const Turn<true>& turn, int seen) {
  if (threadIdx.x % 32 == 0) {
    while (seen != turn.number) seen = look(turn);
    __threadfence();  // the additions of this turn come after those that the number stands for
  }
  __syncwarp();  // no lane adds before the turn has come
}
__device__ __forceinline__ void end_turn(const Turn<true>& turn) {
  __threadfence();  // this lane's additions come before the next number
  __syncwarp();     // and so do those of all lanes
  if (threadIdx.x % 32 == 0) atomicAdd(turn.place, 1);
}

/// dQ += dS K: (Br, Bc), (Bc, d) -> (Br, d), of which each warp has 32 rows and T::dQ_columns columns. dSᵀ lies in
/// smem.dS[place]. dQ_sum: the sums of this Q tile.
template <class T, bool in_turns>
__device__ __forceinline__ void add_dQ(float* dQ_sum, GradientShared<T>& smem, int place, const Turn<in_turns>& turn) {
  constexpr int parts = T::dQ_columns / 8, row_groups = T::Br / 32;
  const int warp = threadIdx.x / 32, row = warp % row_groups * 32, column = warp / row_groups * T::dQ_columns;
  [[maybe_unused]] int seen = 0;
  if constexpr (in_turns) seen = look(turn);  // the answer comes while the product is formed
  Result<parts> dQ;
  multiply_dS_K<parts>(dQ, smem, place, row, column);
  if constexpr (in_turns) wait_for(turn, seen);
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < parts; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) atomicAdd(place_in_sum<T::d>(dQ_sum, row / 16 + i, column / 8 + j, e), dQ[i][j][e]);
  if constexpr (in_turns) end_turn(turn);
}

/// dQ = scale·dQ_sum, a warp for each part (16, 8).
template <int d>
__global__ void write_dQ(float* dQ_sum,             // (B·H, padded, d), see place_in_sum
                         Element* __restrict__ dQ,  // (B·H, Nq, d)
                         const int* __restrict__ starts, std::int64_t parts, int padded, int Nq, float scale) {
  const std::int64_t part = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32, row_tile = part / (d / 8);
  if (part >= parts) return;
  const int tiles_of_head = padded / 16, lane = threadIdx.x % 32, column_part = part % (d / 8);
  const std::int64_t head = row_tile / tiles_of_head;
#pragma unroll
  for (int e = 0; e < 4; e += 2) {
    const auto [row, column] = place_in_D(lane, e);
    const int query = row_of(starts, Nq, row_tile % tiles_of_head * 16 + row);
    if (query >= 0)
      *reinterpret_cast<std::uint32_t*>(dQ + (head * Nq + query) * d + 8 * column_part + column) =
          cvt_rn_x2<Element>(*place_in_sum<d>(dQ_sum, row_tile, column_part, e) * scale,
                             *place_in_sum<d>(dQ_sum, row_tile, column_part, e + 1) * scale);
  }
}

}  // namespace
}  // namespace ch15
