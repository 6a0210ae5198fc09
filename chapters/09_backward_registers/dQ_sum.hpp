// Chapter 9: a Q tile's dQ, which every K/V tile has a part of: how the parts are added up in device memory, in
// any order or by turns, and how they become dQ.
//
// Source: Dao 2023 (FlashAttention-2), Algorithm 2 and section 3.2 ("we use atomic adds to communicate between
// different thread blocks"). Test it: ./workbook test 9.7
#pragma once

#include "phases.hpp"

namespace ch09 {
namespace {

/// The rows of a head in dQ_sum and in what the queries bring: Nq, filled up to whole Q tiles of any size.
__host__ __device__ __forceinline__ int padded(int Nq) {
  return (Nq + 63) / 64 * 64;
}

// Where in dQ_sum a lane has element e of part (16, 8) number `column_part` of 16 rows, d / 8 parts beside each other.
// Nobody reads it but the lane of the same number, for the same element. So it may lie where an addition of a warp
// fills one line of 128 bytes: of each element of a part the 32 lanes side by side, the part's four elements one after
// the other.
//
// And a warp's piece of dS K, (32, Bc), (Bc, 8·parts) -> (32, 8·parts), from this row and column of the Q tile on.
// In smem.dS[place] a row is a key: a left operand (16, 16) is a part of it, transposed.
//
// TODO(9.7) The place. Then, for each 16 keys, both row tiles of dS once by ldmatrix_x4_trans, each 16 columns of K
// once (about 14 lines).
// BEGIN 9.7
template <int d>
__device__ __forceinline__ float* place_in_sum(float* dQ_sum, std::int64_t row_tile, int column_part,
                                               int e) {
  WORKBOOK_TODO(9.7);
}
template <int parts, class T>
__device__ __forceinline__ void multiply_dS_K(Result<parts>& dQ, Shared<T>& smem, int place, int row,
                                              int column) {
  WORKBOOK_TODO(9.7);
}
// END 9.7

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

// A warp waits until its turn has come: then what the warps before have added is there. `seen` is what the place held a
// while ago, when this lane looked first. A warp ends its turn when its own additions are there for whoever sees the
// next number. __threadfence() orders what this lane does before it and after it, for all threads of the GPU; what the
// other lanes of the warp do takes a __syncwarp() besides.
//
// TODO(9.8) The first lane looks again until the place holds this warp's number, and the others wait for it. At the end
// of the turn one lane adds 1 (about 8 lines).
// BEGIN 9.8
__device__ __forceinline__ void wait_for(const Turn<true>& turn, int seen) {
  WORKBOOK_TODO(9.8);
}
__device__ __forceinline__ void end_turn(const Turn<true>& turn) {
  WORKBOOK_TODO(9.8);
}
// END 9.8

/// dQ += dS K: (Br, Bc), (Bc, d) -> (Br, d), of which each warp has 32 rows and T::dQ_columns columns. dSᵀ lies in
/// smem.dS[place]. dQ_sum: the sums of this Q tile.
template <class T, bool in_turns>
__device__ __forceinline__ void add_dQ(float* dQ_sum, Shared<T>& smem, int place, const Turn<in_turns>& turn) {
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
__global__ void write_dQ(float* dQ_sum,             // (heads, padded(Nq), d), see place_in_sum
                         Element* __restrict__ dQ,  // (heads, Nq, d)
                         std::int64_t parts, int Nq, float scale) {
  const std::int64_t part = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32, row_tile = part / (d / 8);
  if (part >= parts) return;
  const int row_tiles = padded(Nq) / 16, lane = threadIdx.x % 32, column_part = part % (d / 8);
  const std::int64_t head = row_tile / row_tiles;
#pragma unroll
  for (int e = 0; e < 4; e += 2) {
    const auto [row, column] = place_in_part(lane, e);
    const int query = row_tile % row_tiles * 16 + row;
    if (query < Nq)
      *reinterpret_cast<std::uint32_t*>(dQ + (head * Nq + query) * d + 8 * column_part + column) =
          cvt_rn_x2<Element>(*place_in_sum<d>(dQ_sum, row_tile, column_part, e) * scale,
                             *place_in_sum<d>(dQ_sum, row_tile, column_part, e + 1) * scale);
  }
}

}  // namespace
}  // namespace ch09
