// Chapter 6, given: copies between device and shared memory, and matmuls of 32 rows at a time in WMMA fragments. You
// know these techniques from chapters 3 and 4. All kernels of this chapter include this file.
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
constexpr int lanes = 32;                  // per warp
constexpr int warp_rows = 32;              // a warp forms (32, 32) pieces of S, dP, P and dS: 2 x 2 fragments
constexpr int pad = 16 / sizeof(Element);  // 16 bytes of padding per row, against bank conflicts (chapter 3)

using Pair = Convert<Element>::Pair;  // two adjacent elements, 4 bytes

using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
constexpr int elements = Accumulator::num_elements;  // of an Accumulator per lane: 256 / 32 = 8
using Left = wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major>;
using Right = wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::row_major>;
using RightTransposed = wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::col_major>;

/// LSE and D of one query. x: the LSE times log2(e), or +inf if all P of this query are 0; y: D.
using QueryRow = float2;

/// Starts copying `rows` rows of d elements into a tile and fills the remaining rows with zeros.
template <int threads, int tile_rows, int padded>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][padded], const Element* __restrict__ source,
                                          int rows) {
  constexpr int chunks = (padded - pad) / 8;  // of 16 bytes per row
  const int first_row = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / chunks) {
    const int row = first_row + i;
    __pipeline_memcpy_async(&reinterpret_cast<uint4*>(tile[row])[chunk],
                            &reinterpret_cast<const uint4*>(source)[row * chunks + chunk], 16, row < rows ? 0 : 16);
  }
}

/// Starts copying the QueryRows of `queries` queries. Rows past the end get LSE = +inf, so that their P is 0.
template <int tile_rows>
__device__ __forceinline__ void load_rows(QueryRow (&rows)[tile_rows], const QueryRow* __restrict__ source,
                                          int queries) {
  const int row = threadIdx.x;
  if (row < queries)
    __pipeline_memcpy_async(&rows[row], &source[row], sizeof(QueryRow));
  else if (row < tile_rows)
    rows[row] = {INFINITY, 0};
}

/// The row and column of each element of an Accumulator. CUDA does not document them. Loading a matrix that contains
/// its own indices reveals them.
struct Map {
  int row[elements], column[elements];
};
template <int threads>
__device__ void write_index(float (&index)[16][16]) {
  for (int i = threadIdx.x; i < 256; i += threads) index[i / 16][i % 16] = i;
}
__device__ __forceinline__ Map make_map(const float (&index)[16][16]) {
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

/// 32 rows of a tile, from `first` on, as left operands. With in_registers they are loaded once, in the constructor;
/// otherwise get() loads them from shared memory each time.
template <bool in_registers, int tile_rows, int padded>
struct LeftRows {
  const Element (&tile)[tile_rows][padded];
  int first;
  Left fragments[2][in_registers ? (padded - pad) / 16 : 1];

  __device__ __forceinline__ LeftRows(const Element (&tile_)[tile_rows][padded], int first_)
      : tile(tile_), first(first_) {
    if constexpr (in_registers) {
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
  /// The fragment of rows 16 r to 16 r + 15 and columns c to c + 15.
  __device__ __forceinline__ Left get(int r, int c) const {
    if constexpr (in_registers) return fragments[r][c / 16];
    Left fragment;
    load(fragment, r, c);
    return fragment;
  }
};
template <bool in_registers = false, int tile_rows, int padded>
__device__ __forceinline__ LeftRows<in_registers, tile_rows, padded> left_rows(const Element (&tile)[tile_rows][padded],
                                                                               int first) {
  return {tile, first};
}

/// C = A Bᵀ, (32, d) (d, 32) -> (32, 32). The 32 rows of B start at B_row.
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

/// C += A B, (32, k) (k, 16 wide) -> (32, 16 wide). The rows of A start at A_row, the columns of B at B_column.
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

/// Rounds an Accumulator to Element and stores it in a tile, at (row, column). It stores through a half accumulator,
/// which copies 16 bits per element whatever they mean. This assumes that half and float accumulators have the same
/// layout. CUDA does not guarantee it, but it holds from compute capability 8.0 on; otherwise every test fails.
template <int rows, int padded>
__device__ __forceinline__ void store_rounded(Element (&tile)[rows][padded], int row, int column,
                                              const Accumulator& x) {
  wmma::fragment<wmma::accumulator, 16, 16, 16, half> rounded;
#pragma unroll
  for (int e = 0; e < elements; ++e) rounded.x[e] = Convert<Element>::bits_as_half(Convert<Element>::rounded(x.x[e]));
  wmma::store_matrix_sync(reinterpret_cast<half*>(&tile[row][column]), rounded, padded, wmma::mem_row_major);
}

/// Stores group `i` of eight adjacent elements: 16 bytes of Element or 32 of float.
__device__ __forceinline__ void store_group(Element* target, int i, const float (&x)[8]) {
  uint4 vector;
  auto* pairs = reinterpret_cast<Pair*>(&vector);
#pragma unroll
  for (int k = 0; k < 4; ++k) pairs[k] = Convert<Element>::rounded(x[2 * k], x[2 * k + 1]);
  reinterpret_cast<uint4*>(target)[i] = vector;
}
__device__ __forceinline__ void store_group(float* target, int i, const float (&x)[8]) {
  reinterpret_cast<float4*>(target)[2 * i] = {x[0], x[1], x[2], x[3]};
  reinterpret_cast<float4*>(target)[2 * i + 1] = {x[4], x[5], x[6], x[7]};
}

/// Stores factor·x in device memory, in the first `rows` rows of d elements, from `column` on. Uses 16 rows of a shared
/// memory tile as scratch, from tile_row on; no other warp may use them.
template <int d, int tall, int wide, int tile_rows, int padded, class Gradient>
__device__ __forceinline__ void write_gradient(Gradient* __restrict__ target, int rows, int column, float factor,
                                               const Accumulator (&x)[tall][wide], Element (&tile)[tile_rows][padded],
                                               int tile_row) {
  auto* floats = reinterpret_cast<float*>(tile[tile_row]);
  const int lane = threadIdx.x % lanes;  // stores half of row lane / 2
#pragma unroll
  for (int r = 0; r < tall; ++r) {
#pragma unroll
    for (int n = 0; n < wide; ++n) {
      wmma::store_matrix_sync(floats, x[r][n], padded / 2, wmma::mem_row_major);
      __syncwarp();
      const auto* vectors = reinterpret_cast<const float4*>(floats + lane / 2 * (padded / 2));
      const float4 a = vectors[lane % 2 * 2], b = vectors[lane % 2 * 2 + 1];
      const int row = 16 * r + lane / 2;
      if (row < rows)
        store_group(target, row * (d / 8) + (column + 16 * n) / 8 + lane % 2,
                    {a.x * factor, a.y * factor, a.z * factor, a.w * factor,  //
                     b.x * factor, b.y * factor, b.z * factor, b.w * factor});
      __syncwarp();
    }
  }
}

/// A grid with one thread block per `each` of the `count` rows of each head.
inline dim3 blocks(std::int64_t heads, std::int64_t count, std::int64_t each) {
  return workbook::cuda::grid_of(heads * ((count + each - 1) / each), "the number of blocks");
}

}  // namespace
}  // namespace ch06
