// Chapter 6, given: tiles between device and shared memory, and products of 32 x 32 pieces in fragments. Nothing here
// is new; chapters 3 and 4 build it. All kernels of this chapter include it.
#pragma once

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"

namespace ch06 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; chapter 7 compiles the kernels again, with bf16

using namespace nvcuda;
using workbook::cuda::Convert, workbook::cuda::with_head_dim;

constexpr float log2_e = 1.4426950408889634f;
constexpr int lanes = 32;      // of a warp
constexpr int warp_rows = 32;  // of S, dP, P and dS that a warp forms at a time, and as many columns: two fragments
constexpr int pad = 16 / sizeof(Element);  // rows of tiles are padded by 16 bytes: chapter 3 says why

using Pair = Convert<Element>::Pair;  // two neighbouring elements, 4 bytes

using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
constexpr int elements = Accumulator::num_elements;  // of an Accumulator that one lane holds: 256 / lanes = 8
using Left = wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major>;
using Right = wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::row_major>;
using RightTransposed = wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::col_major>;

/// What a query brings to its row of P and dS. x: its LSE in units of log2, +inf if its P is to be 0; y: its D.
using QueryRow = float2;

/// Starts to copy `rows` rows of d elements into a tile; the rest of the tile becomes zeros.
template <int threads, int tile_rows, int padded>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][padded], const Element* __restrict__ source,
                                          int rows) {
  constexpr int chunks = (padded - pad) / 8;  // of 16 bytes in a row
  const int first_row = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / chunks) {
    const int row = first_row + i;
    __pipeline_memcpy_async(&reinterpret_cast<uint4*>(tile[row])[chunk],
                            &reinterpret_cast<const uint4*>(source)[row * chunks + chunk], 16, row < rows ? 0 : 16);
  }
}

/// Starts to copy the QueryRows of `queries` queries; those that do not exist are to have P = 0.
template <int tile_rows>
__device__ __forceinline__ void load_rows(QueryRow (&rows)[tile_rows], const QueryRow* __restrict__ source,
                                          int queries) {
  const int row = threadIdx.x;
  if (row < queries)
    __pipeline_memcpy_async(&rows[row], &source[row], sizeof(QueryRow));
  else if (row < tile_rows)
    rows[row] = {INFINITY, 0};
}

/// Which row and column of its matrix each element of an Accumulator is. CUDA does not say, but a matrix that holds its
/// own indices does.
struct Map {
  int row[elements], column[elements];
};
template <int threads>
__device__ void write_index(float (&index)[16][16]) {
  for (int i = threadIdx.x; i < 256; i += threads) index[i / 16][i % 16] = i;
}
__device__ __forceinline__ Map learn_map(const float (&index)[16][16]) {
  Accumulator matrix;
  wmma::load_matrix_sync(matrix, &index[0][0], 16, wmma::mem_row_major);
  Map map;
#pragma unroll
  for (int e = 0; e < elements; ++e) map.row[e] = int(matrix.x[e]) / 16, map.column[e] = int(matrix.x[e]) % 16;
  return map;
}

template <int tall, int wide>
__device__ __forceinline__ void clear(Accumulator (&C)[tall][wide]) {
#pragma unroll
  for (int r = 0; r < tall; ++r) {
#pragma unroll
    for (int n = 0; n < wide; ++n) wmma::fill_fragment(C[r][n], 0.0f);
  }
}

/// 32 rows of a tile, from `first` on, as left operands. Where there is room for them they are kept in registers, so
/// that they are loaded once and not for every tile that passes.
template <bool kept, int tile_rows, int padded>
struct LeftRows {
  const Element (&tile)[tile_rows][padded];
  int first;
  Left fragments[2][kept ? (padded - pad) / 16 : 1];

  __device__ __forceinline__ LeftRows(const Element (&tile_)[tile_rows][padded], int first_)
      : tile(tile_), first(first_) {
    if constexpr (kept) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int c = 0; c < padded - pad; c += 16) load(fragments[r][c / 16], r, c);
      }
    }
  }
  __device__ __forceinline__ void load(Left& fragment, int r, int c) const {
    wmma::load_matrix_sync(fragment, &tile[first + 16 * r][c], padded);
  }
  /// Rows 16 r and columns c of these.
  __device__ __forceinline__ Left get(int r, int c) const {
    if constexpr (kept) return fragments[r][c / 16];
    Left fragment;
    load(fragment, r, c);
    return fragment;
  }
};
template <bool kept = false, int tile_rows, int padded>
__device__ __forceinline__ LeftRows<kept, tile_rows, padded> left_rows(const Element (&tile)[tile_rows][padded],
                                                                       int first) {
  return {tile, first};
}

/// C = A Bᵀ for 32 rows of each, those of B from B_row on: (32, d), (32, d) -> (32, 32).
template <class Rows, int B_rows, int padded>
__device__ __forceinline__ void multiply_transposed(Accumulator (&C)[2][2], const Rows& A,
                                                    const Element (&B)[B_rows][padded], int B_row) {
  clear(C);
#pragma unroll
  for (int c = 0; c < padded - pad; c += 16) {
    const Left a[2] = {A.get(0, c), A.get(1, c)};
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      RightTransposed b;
      wmma::load_matrix_sync(b, &B[B_row + 16 * n][c], padded);
#pragma unroll
      for (int r = 0; r < 2; ++r) wmma::mma_sync(C[r][n], a[r], b, C[r][n]);
    }
  }
}

/// C += A B for 32 rows of A and some columns of B, from the given ones on: (32, k), (k, 16 wide) -> (32, 16 wide).
template <int wide, int A_rows, int A_padded, int B_padded>
__device__ __forceinline__ void accumulate(Accumulator (&C)[2][wide], const Element (&A)[A_rows][A_padded], int A_row,
                                           const Element (&B)[A_padded - pad][B_padded], int B_column) {
#pragma unroll
  for (int k = 0; k < A_padded - pad; k += 16) {
    Left a[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) wmma::load_matrix_sync(a[r], &A[A_row + 16 * r][k], A_padded);
#pragma unroll
    for (int n = 0; n < wide; ++n) {
      Right b;
      wmma::load_matrix_sync(b, &B[k][B_column + 16 * n], B_padded);
#pragma unroll
      for (int r = 0; r < 2; ++r) wmma::mma_sync(C[r][n], a[r], b, C[r][n]);
    }
  }
}

/// An Accumulator, rounded to Element, into a tile: through an accumulator of half, which moves 16 bits whatever they
/// mean. Accumulators of half and of float keep an element in the same place: CUDA does not promise it, but it is so
/// from compute capability 8.0 on. Elsewhere every test would fail.
template <int rows, int padded>
__device__ __forceinline__ void store_rounded(Element (&tile)[rows][padded], int row, int column,
                                              const Accumulator& x) {
  wmma::fragment<wmma::accumulator, 16, 16, 16, half> rounded;
#pragma unroll
  for (int e = 0; e < elements; ++e) rounded.x[e] = Convert<Element>::bits_as_half(Convert<Element>::rounded(x.x[e]));
  wmma::store_matrix_sync(reinterpret_cast<half*>(&tile[row][column]), rounded, padded, wmma::mem_row_major);
}

/// Group `i` of eight neighbours: 16 bytes of Element or 32 of float.
__device__ __forceinline__ void write_eight(Element* target, int i, const float (&x)[8]) {
  uint4 eight;
  auto* pairs = reinterpret_cast<Pair*>(&eight);
#pragma unroll
  for (int k = 0; k < 4; ++k) pairs[k] = Convert<Element>::rounded(x[2 * k], x[2 * k + 1]);
  reinterpret_cast<uint4*>(target)[i] = eight;
}
__device__ __forceinline__ void write_eight(float* target, int i, const float (&x)[8]) {
  reinterpret_cast<float4*>(target)[2 * i] = {x[0], x[1], x[2], x[3]};
  reinterpret_cast<float4*>(target)[2 * i + 1] = {x[4], x[5], x[6], x[7]};
}

/// factor·x to device memory, to rows of d elements of which the first `rows` exist, from column `column` on. Goes
/// through 16 rows of a tile, from tile_row on, which are this warp's own.
template <int d, int tall, int wide, int tile_rows, int padded, class Gradient>
__device__ __forceinline__ void write_gradient(Gradient* __restrict__ target, int rows, int column, float factor,
                                               const Accumulator (&x)[tall][wide], Element (&tile)[tile_rows][padded],
                                               int tile_row) {
  auto* floats = reinterpret_cast<float*>(tile[tile_row]);
  const int lane = threadIdx.x % lanes;  // has half of row lane / 2
#pragma unroll
  for (int r = 0; r < tall; ++r) {
#pragma unroll
    for (int n = 0; n < wide; ++n) {
      wmma::store_matrix_sync(floats, x[r][n], padded / 2, wmma::mem_row_major);
      __syncwarp();
      const auto* fours = reinterpret_cast<const float4*>(floats + lane / 2 * (padded / 2));
      const float4 a = fours[lane % 2 * 2], b = fours[lane % 2 * 2 + 1];
      const int row = 16 * r + lane / 2;
      if (row < rows)
        write_eight(target, row * (d / 8) + (column + 16 * n) / 8 + lane % 2,
                    {a.x * factor, a.y * factor, a.z * factor, a.w * factor,  //
                     b.x * factor, b.y * factor, b.z * factor, b.w * factor});
      __syncwarp();
    }
  }
}

/// A grid of one block for `each` of the `count` rows of each of `heads`.
inline dim3 blocks(std::int64_t heads, std::int64_t count, std::int64_t each) {
  return workbook::cuda::grid_of(heads * ((count + each - 1) / each), "the number of blocks");
}

}  // namespace
}  // namespace ch06
