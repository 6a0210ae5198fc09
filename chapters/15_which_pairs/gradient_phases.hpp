// Chapter 15, backward, given: what a thread block keeps in shared memory, and the phases for one Q tile. Chapter 9
// builds them. What is new: form_operands asks for the class of its tile, and what becomes of a pair is in
// score_gradients.hpp.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2.
#pragma once

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "phases.hpp"
#include "score_gradients.hpp"

namespace ch15 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; which_pairs_backward_bf16.cu compiles the kernels again, with bf16

/// What a lane holds of a left operand (16, 16), or of 16 columns of a right one.
using Operand = Fragment<Element, 4>;
/// A result (score_gradients.hpp), rounded: what the next product takes of it.
template <int parts>
using Operands = Operand[2][parts / 2];

/// 16 columns of C, from column 16·j on, += A B: A (32, 16) as two row tiles, B (16, 16).
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

/// How a thread block divides its work. It has a K/V tile of Bc keys, past which Q tiles of Br queries go. 32
/// keys belong to a team: one warp, or two where one warp's registers cannot hold dK and dV of 32 keys. A warp
/// accumulates `columns` columns of them, at most 64. It forms P and dS of half of a Q tile at a time, `queries`
/// queries, which are `parts` parts of eight.
template <int d_, int Bc_, int Br_, int warps_>
struct Plan {
  static constexpr int d = d_, Bc = Bc_, Br = Br_, warps = warps_, threads = 32 * warps;
  static constexpr int team = 32 * warps / Bc, columns = d / team, queries = Br / 2, parts = queries / 8;
  static constexpr int dQ_columns = d * Br / 32 / warps;  // a warp forms 32 rows of a Q tile's dQ
};

/// What a thread block keeps in shared memory. There are two places for what belongs to a Q tile. P is kept for the
/// other warp of a team; a team of one needs none.
template <class T>
struct GradientShared {
  Element K[T::Bc][T::d], V[T::Bc][T::d];
  Element Q[2][T::Br][T::d], dO[2][T::Br][T::d];
  Element P[T::team == 1 ? 1 : T::Bc][T::Br], dS[2][T::Bc][T::Br];  // Pᵀ and dSᵀ: a row is a key
  float2 rows[2][T::Br];
  int ticket;
  SHARED_LAYOUT(GradientShared, K, V, Q, dO, P, dS, rows, ticket);
};

/// Starts to copy a Q tile, `queries` queries if it is the last one: of Q and dO (Br, d) each, and what its queries
/// bring. All three pointers are at its first row.
template <class T>
__device__ __forceinline__ void load_q_tile(GradientShared<T>& smem, int place, const Element* __restrict__ Q,
                                               const Element* __restrict__ dO, const float2* __restrict__ rows,
                                               int queries) {
  load_tile<T::threads>(smem.Q[place], Q, queries, threadIdx.x);
  load_tile<T::threads>(smem.dO[place], dO, queries, threadIdx.x);
  const int query = 2 * threadIdx.x;  // 16 bytes are what two queries bring; `rows` is filled up to whole Q tiles
  if (query < T::Br) cp_async_16(&smem.rows[place][query], rows + query);
}

/// C = A Bᵀ of 32 rows of tile A and 8·parts rows of tile B: (32, d), (8·parts, d) -> (32, 8·parts). A row of B becomes
/// a column of C.
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

/// Pᵀ and dSᵀ are left operands where they are.
template <int parts>
__device__ __forceinline__ void round_to_operands(Operands<parts>& A, const Result<parts>& C) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int k = 0; k < parts / 2; ++k) A[i][k] = as_A<Element>(C[i][2 * k], C[i][2 * k + 1]);
}
/// C += A B: (32, 8·parts), (8·parts, 8·n) -> (32, 8·n), where B is the tile from this row and column on.
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

/// What others need of a warp's Pᵀ and dSᵀ goes to shared memory, a row for each key, from this row and column on, and
/// comes back as it was.
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

/// P and dS of this warp's keys, from `own` on, and of the queries from q on of the Q tile in this place, as
/// operands. The first of these keys and queries are numbers first_key and first_query of their sequence. dSᵀ is stored
/// for dQ, Pᵀ for the other warp of a team.
template <class T, class Change>
__device__ __forceinline__ void form_operands(Operands<T::parts>& P, Operands<T::parts>& dS, GradientShared<T>& smem,
                                              int place, int own, int q, const Change& change, const SeenKeys& seen,
                                              int first_key, int first_query) {
  Result<T::parts> S_own, dP_own;
  multiply_transposed<T::parts>(S_own, smem.K, own, smem.Q[place], q);    // Sᵀ = K Qᵀ, (32, queries)
  multiply_transposed<T::parts>(dP_own, smem.V, own, smem.dO[place], q);  // dPᵀ = V dOᵀ, (32, queries)
  // Queries that do not exist need no mask: with their LSE of +inf P is 0.
  const Range queries{first_query, min(seen.Nq, first_query + T::queries)};
  const bool masked =
      queries.first < queries.last && seen.class_of(queries, first_key, first_key + 32) != TileClass::full;
  if (masked) {
    workbook::cuda::note("masked tile", first_query / T::Br);
    form_P_and_dS<true, T::parts>(S_own, dP_own, smem.rows[place] + q, change, seen, first_key, first_query);
  } else {
    form_P_and_dS<false, T::parts>(S_own, dP_own, smem.rows[place] + q, change, seen, first_key, first_query);
  }
  round_to_operands<T::parts>(P, S_own);
  round_to_operands<T::parts>(dS, dP_own);
  store_operands<T::parts>(smem.dS[place], own, q, dS);
  if constexpr (T::team == 2) store_operands<T::parts>(smem.P, own, q, P);
}

/// P and dS of the team's keys and of the queries from q on, which the other warp of the team forms and stores.
template <class T>
__device__ __forceinline__ void take_operands(Operands<T::parts>& P, Operands<T::parts>& dS, GradientShared<T>& smem,
                                              int place, int own, int q) {
  workbook::cuda::barrier_sync(1 + own / 32, 64);  // the team's two warps have stored P and dS
  load_operands<T::parts>(P, smem.P, own, q);
  load_operands<T::parts>(dS, smem.dS[place], own, q);
}

/// C·scale, rounded, to T::columns columns of the first `rows` of 32 rows of a gradient.
template <class T>
__device__ __forceinline__ void write_gradient(Element* __restrict__ gradient, const Result<T::columns / 8>& C,
                                               float scale, int rows) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const auto [row, column] = place_in_D(lane, e);
      if (16 * i + row >= rows) continue;
#pragma unroll
      for (int j = 0; j < T::columns / 8; ++j)
        *reinterpret_cast<std::uint32_t*>(gradient + (16 * i + row) * T::d + 8 * j + column) =
            cvt_rn_x2<Element>(C[i][j][e] * scale, C[i][j][e + 1] * scale);
    }
}

}  // namespace
}  // namespace ch15
