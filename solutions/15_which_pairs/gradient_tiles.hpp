// Chapter 15, backward, given: the shared memory of a thread block, the registers of a warp, and the phases for one Q
// tile that do not depend on the mask. Chapter 9 builds them.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2.
#pragma once

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "phases.hpp"

namespace ch15 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; another file compiles the kernels again, with bf16

/// A lane's four floats of an accumulator (16, 8); and a lane's registers of an operand A (16, 16), or of an operand B
/// (16, 16).
using Part = Fragment<float, 4>;
using Operand = Fragment<Element, 4>;

/// The accumulators of 32 rows and 8·parts columns: two row tiles of 16. And the same, rounded to the operands of the
/// next matmul.
template <int parts>
using Result = Part[2][parts];
template <int parts>
using Operands = Operand[2][parts / 2];

/// C += A B for 16 columns of C, from column 16·j on: A (32, 16) as two row tiles, B (16, 16).
template <int parts>
__device__ __forceinline__ void multiply_16(Result<parts>& C, int j, const Operand& upper, const Operand& lower,
                                            const Operand& B) {
  mma_m16n8k16(C[0][2 * j], upper, B[0], B[1]);
  mma_m16n8k16(C[0][2 * j + 1], upper, B[2], B[3]);
  mma_m16n8k16(C[1][2 * j], lower, B[0], B[1]);
  mma_m16n8k16(C[1][2 * j + 1], lower, B[2], B[3]);
}

template <int parts>
__device__ __forceinline__ void clear(Result<parts>& C) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (Part& part : C[i]) part.fill(0);
}

/// How a thread block divides its work. It keeps one K/V tile of Bc keys and loops over Q tiles of Br queries. A team
/// has 32 keys: one warp, or two if one warp's registers cannot hold dK and dV of 32 keys. A warp accumulates `columns`
/// of their columns, at most 64. It computes P and dS of half of a Q tile at a time: `queries` queries, `parts` parts
/// of eight.
template <int d_, int Bc_, int Br_, int warps_>
struct Plan {
  static constexpr int d = d_, Bc = Bc_, Br = Br_, warps = warps_, threads = 32 * warps;
  static constexpr int team = 32 * warps / Bc, columns = d / team, queries = Br / 2, parts = queries / 8;
  static constexpr int dQ_columns = d * Br / 32 / warps;  // a warp computes 32 rows of a Q tile's dQ
};

/// The shared memory of a thread block. All data of a Q tile has two buffers. P is stored for the other warp of a team;
/// a team of one warp needs no P.
template <class T>
struct GradientShared {
  Element K[T::Bc][T::d], V[T::Bc][T::d];
  Element Q[2][T::Br][T::d], dO[2][T::Br][T::d];
  Element P[T::team == 1 ? 1 : T::Bc][T::Br], dS[2][T::Bc][T::Br];  // Pᵀ and dSᵀ: a row is a key
  float2 row_stats[2][T::Br];
  int ticket;
  SHARED_LAYOUT(GradientShared, K, V, Q, dO, P, dS, row_stats, ticket);
};

/// Starts to copy a Q tile into a buffer: Q and dO, (Br, d) each, and its row statistics. All three pointers are at its
/// first row. `queries` queries exist from there on.
template <class T>
__device__ __forceinline__ void load_q_tile(GradientShared<T>& smem, int buffer, const Element* __restrict__ Q,
                                            const Element* __restrict__ dO, const float2* __restrict__ row_stats,
                                            int queries) {
  load_tile<T::threads>(smem.Q[buffer], Q, queries, threadIdx.x);
  load_tile<T::threads>(smem.dO[buffer], dO, queries, threadIdx.x);
  const int query = 2 * threadIdx.x;  // 16 bytes: two queries; row_stats is padded to whole Q tiles
  if (query < T::Br) cp_async_16(&smem.row_stats[buffer][query], row_stats + query);
}

/// C = A Bᵀ for 32 rows of tile A and 8·parts rows of tile B: (32, d), (8·parts, d) -> (32, 8·parts). A row of tile B
/// gives a column of C.
template <int parts, int A_rows, int B_rows, int d>
__device__ __forceinline__ void multiply_transposed(Result<parts>& C, Element (&A)[A_rows][d], int A_row,
                                                    Element (&B)[B_rows][d], int B_row) {
  clear<parts>(C);
#pragma unroll
  for (int c = 0; c < d; c += 16) {
    Operand upper, lower, right;
    load_A(upper, A, A_row, c), load_A(lower, A, A_row + 16, c);
#pragma unroll
    for (int j = 0; j < parts / 2; ++j) {
      load_B_by_columns(right, B, B_row + 16 * j, c);
      multiply_16<parts>(C, j, upper, lower, right);
    }
  }
}

/// Pᵀ and dSᵀ become operands A in the same lanes.
template <int parts>
__device__ __forceinline__ void round_to_operands(Operands<parts>& A, const Result<parts>& C) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int k = 0; k < parts / 2; ++k) A[i][k] = as_A<Element>(C[i][2 * k], C[i][2 * k + 1]);
}
/// C += A B: (32, 8·parts), (8·parts, 8·n) -> (32, 8·n), where B is the tile from `row` and `column` on.
template <int parts, int n, int rows, int columns>
__device__ __forceinline__ void accumulate(Part (&C)[2][n], const Operands<parts>& A, Element (&B)[rows][columns],
                                           int row, int column) {
#pragma unroll
  for (int k = 0; k < parts / 2; ++k)
#pragma unroll
    for (int j = 0; j < n / 2; ++j) {
      Operand right;
      load_B_by_rows(right, B, row + 16 * k, column + 16 * j);
      multiply_16<n>(C, j, A[0][k], A[1][k], right);
    }
}

/// Stores a warp's Pᵀ or dSᵀ for other warps in a tile with one row per key, from `row` and `column` on; and loads it
/// back into the same registers.
template <int parts, int rows, int columns>
__device__ __forceinline__ void store_operands(Element (&tile)[rows][columns], int row, int column,
                                               const Operands<parts>& A) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int k = 0; k < parts / 2; ++k)
      stmatrix_x4(swizzled(tile, row + 16 * i + lane % 16, column / 8 + 2 * k + lane / 16), A[i][k]);
}
template <int parts, int rows, int columns>
__device__ __forceinline__ void load_operands(Operands<parts>& A, Element (&tile)[rows][columns], int row, int column) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int k = 0; k < parts / 2; ++k) load_A(A[i][k], tile, row + 16 * i, column + 16 * k);
}

/// Loads P and dS of the team's keys and of the queries from q on, which the team's other warp computes and stores.
template <class T>
__device__ __forceinline__ void load_team_operands(Operands<T::parts>& P, Operands<T::parts>& dS,
                                                   GradientShared<T>& smem, int buffer, int warp_key, int q) {
  workbook::cuda::barrier_sync(1 + warp_key / 32, 64);  // the team's two warps have stored P and dS
  load_operands<T::parts>(P, smem.P, warp_key, q);
  load_operands<T::parts>(dS, smem.dS[buffer], warp_key, q);
}

/// Writes C·scale, rounded, to T::columns columns of a gradient: the first `rows` of 32 rows.
template <class T>
__device__ __forceinline__ void write_gradient(Element* __restrict__ gradient, const Result<T::columns / 8>& C,
                                               float scale, int rows) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const auto [row, column] = position_in_part(lane, e);
      if (16 * i + row >= rows) continue;
#pragma unroll
      for (int j = 0; j < T::columns / 8; ++j)
        *reinterpret_cast<std::uint32_t*>(gradient + (16 * i + row) * T::d + 8 * j + column) =
            cvt_rn_x2<Element>(C[i][j][e] * scale, C[i][j][e + 1] * scale);
    }
}

}  // namespace
}  // namespace ch15
