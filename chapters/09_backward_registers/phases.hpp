// Chapter 9: the division of the work, the shared-memory layout, and the phases of the kernel for one Q tile.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2.
// Test it: ./workbook test 9
#pragma once

#include "fragments.hpp"

namespace ch09 {
namespace {

constexpr float log2_e = 1.4426950408889634f;

/// How a thread block divides its work. It keeps a K/V tile of Bc keys and loops over Q tiles of Br queries. 32 keys
/// belong to a team: one warp, or two if the registers of one cannot hold dK and dV of 32 keys. A warp accumulates
/// `columns` columns of dK and dV, at most 64. It processes half of a Q tile at a time: `queries` queries, which are
/// `parts` Parts of eight columns.
template <int d_, int Bc_, int Br_, int warps_>
struct Plan {
  static constexpr int d = d_, Bc = Bc_, Br = Br_, warps = warps_, threads = 32 * warps;
  static constexpr int team = 32 * warps / Bc, columns = d / team, queries = Br / 2, parts = queries / 8;
  static constexpr int dQ_columns = d * Br / 32 / warps;  // of a warp's 32 rows of dQ
};

/// A thread block's shared memory: two buffers for everything that belongs to a Q tile. P is for the other warp of a
/// team of two; a team of one stores none.
template <class T>
struct Shared {
  Element K[T::Bc][T::d], V[T::Bc][T::d];
  Element Q[2][T::Br][T::d], dO[2][T::Br][T::d];
  Element P[T::team == 1 ? 1 : T::Bc][T::Br], dS[2][T::Bc][T::Br];  // Pᵀ and dSᵀ: a row is a key
  float2 row_stats[2][T::Br];
  int ticket;
  SHARED_LAYOUT(Shared, K, V, Q, dO, P, dS, row_stats, ticket);
};

/// Starts copying (rows, d) from device memory into a tile; the remaining rows are set to zero.
template <int threads, int tile_rows, int d>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][d], const Element* __restrict__ source, int rows) {
  const int first_row = threadIdx.x / (d / 8), chunk = threadIdx.x % (d / 8);
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / (d / 8)) {
    const int row = first_row + i;
    cp_async_16(swizzled(tile, row, chunk), source + row * d + 8 * chunk, row < rows ? 16 : 0);
  }
}

/// Starts copying Q tile i of a head into buffer i % 2: Q and dO, (Br, d) each, and the row statistics (Br).
template <class T>
__device__ __forceinline__ void load_q_tile(Shared<T>& smem, const Element* __restrict__ Q,
                                            const Element* __restrict__ dO, const float2* __restrict__ row_stats, int i,
                                            int Nq) {
  const std::int64_t first = std::int64_t(i) * T::Br * T::d;
  load_tile<T::threads>(smem.Q[i % 2], Q + first, Nq - i * T::Br);
  load_tile<T::threads>(smem.dO[i % 2], dO + first, Nq - i * T::Br);
  const int query = 2 * threadIdx.x;  // 16 bytes: two queries; row_stats is padded to whole Q tiles
  if (query < T::Br) cp_async_16(&smem.row_stats[i % 2][query], row_stats + i * T::Br + query);
}

/// C = A Bᵀ for 32 rows of tile A from A_row on, and 8·parts rows of tile B from B_row on:
/// (32, d), (8·parts, d) -> (32, 8·parts). A row of B becomes a column of C.
template <int parts, int A_rows, int B_rows, int d>
__device__ __forceinline__ void multiply_transposed(Result<parts>& C, Element (&A)[A_rows][d], int A_row,
                                                    Element (&B)[B_rows][d], int B_row) {
  // TODO(9.2) Clear C. For each 16 columns of A and B, load both row tiles of A once and each 16 rows of B once, and
  // multiply them by multiply_16 (about 10 lines).
  // BEGIN 9.2
  WORKBOOK_TODO(9.2);
  // END 9.2
}

/// The unmasked pairs of a warp's block of Sᵀ. Keys and queries are numbered from its first ones: (query q, key k) is
/// unmasked if k < keys, so that the key exists, and k <= q + diagonal.
struct Mask {
  bool needed;  // false: every pair is unmasked
  int keys, diagonal;
};

/// Sᵀ -> Pᵀ = exp2(S·scale - LSE) and dPᵀ -> dSᵀ = P∘(dP - D), (32, 8·parts), in place and in fp32. scale includes
/// log2(e). row_stats: LSE·log2(e) in x and D in y, from the first query on. P and dS of a masked pair are 0.
template <int parts>
__device__ __forceinline__ void form_P_and_dS(Result<parts>& S, Result<parts>& dP, const float2* row_stats, float scale,
                                              const Mask& mask) {
  // TODO(9.3) A column is a query. Of each Part a lane holds two adjacent columns; one float4 of row_stats has LSE and
  // D of both (about 13 lines).
  // BEGIN 9.3
  WORKBOOK_TODO(9.3);
  // END 9.3
}

// The causal mask of a K/V tile: query i of a head attends to the tile's keys 0 to i + diagonal. `keys` is Nk minus the
// tile's first key; if it is below Bc, the tile's last keys do not exist.
//
// TODO(9.4) first_q_tile: the index of the first Q tile with an unmasked pair, even if no such Q tile exists; 0 if not
// causal. mask_of: `needed` if any pair of Q tile i and the K/V tile is masked, or a key does not exist. Keys are
// numbered from warp_key and queries from q, which are offsets within their tiles (about 6 lines).
// BEGIN 9.4
template <class T>
__device__ __forceinline__ int first_q_tile(int diagonal, bool causal) {
  WORKBOOK_TODO(9.4);
}
template <class T>
__device__ __forceinline__ Mask mask_of(int i, int warp_key, int q, int keys, int diagonal, bool causal) {
  WORKBOOK_TODO(9.4);
}
// END 9.4

// Two accumulators (16, 8) side by side, rounded, are a left operand (16, 16) in the same lanes (exercise 8.5). So Pᵀ
// and dSᵀ need no shared memory. A query is a row of dO and of Q, hence a row of the right operand: load_B_by_rows.
//
// TODO(9.5) round_to_operands: C as left operands. accumulate: C += A B, (32, 8·parts), (8·parts, 8·n) -> (32, 8·n),
// where B is the tile from this row and column on (about 13 lines).
// BEGIN 9.5
template <int parts>
__device__ __forceinline__ void round_to_operands(Operands<parts>& A, const Result<parts>& C) {
  WORKBOOK_TODO(9.5);
}
template <int parts, int n, int rows, int columns>
__device__ __forceinline__ void accumulate(Part (&C)[2][n], const Operands<parts>& A,
                                           Element (&B)[rows][columns], int row, int column) {
  WORKBOOK_TODO(9.5);
}
// END 9.5

// Other warps need a warp's Pᵀ and dSᵀ: they are stored to shared memory with one row per key, and loaded from there.
//
// TODO(9.6) store_operands: A, which is (32, 8·parts), to a tile from this row and column on, one stmatrix_x4 per
// operand; each lane supplies the same address as in load_A. load_operands: the same A back (about 10 lines).
// BEGIN 9.6
template <int parts, int rows, int columns>
__device__ __forceinline__ void store_operands(Element (&tile)[rows][columns], int row, int column,
                                               const Operands<parts>& A) {
  WORKBOOK_TODO(9.6);
}
template <int parts, int rows, int columns>
__device__ __forceinline__ void load_operands(Operands<parts>& A, Element (&tile)[rows][columns], int row,
                                              int column) {
  WORKBOOK_TODO(9.6);
}
// END 9.6

/// Computes P and dS of the 32 keys from warp_key on and of the queries from q on of Q tile i, as operands. Stores dSᵀ
/// for dQ, and Pᵀ for the other warp of a team of two.
template <class T>
__device__ __forceinline__ void form_operands(Operands<T::parts>& P, Operands<T::parts>& dS, Shared<T>& smem, int i,
                                              int warp_key, int q, float scale, const Mask& mask) {
  Result<T::parts> S, dP;
  multiply_transposed<T::parts>(S, smem.K, warp_key, smem.Q[i % 2], q);    // Sᵀ = K Qᵀ, (32, queries)
  multiply_transposed<T::parts>(dP, smem.V, warp_key, smem.dO[i % 2], q);  // dPᵀ = V dOᵀ, (32, queries)
  if (mask.needed) {
    workbook::cuda::note("masked tile", i);
    form_P_and_dS<T::parts>(S, dP, smem.row_stats[i % 2] + q, scale, mask);
  } else {
    form_P_and_dS<T::parts>(S, dP, smem.row_stats[i % 2] + q, scale, {false, 0, 0});  // no comparisons
  }
  round_to_operands<T::parts>(P, S);
  round_to_operands<T::parts>(dS, dP);
  store_operands<T::parts>(smem.dS[i % 2], warp_key, q, dS);
  if constexpr (T::team == 2) store_operands<T::parts>(smem.P, warp_key, q, P);
}

/// Loads P and dS of the team's keys and of the queries from q on, which the team's other warp has computed.
template <class T>
__device__ __forceinline__ void load_team_operands(Operands<T::parts>& P, Operands<T::parts>& dS, Shared<T>& smem,
                                                   int i, int warp_key, int q) {
  workbook::cuda::barrier_sync(1 + warp_key / 32, 64);  // the team's two warps have stored P and dS
  load_operands<T::parts>(P, smem.P, warp_key, q);
  load_operands<T::parts>(dS, smem.dS[i % 2], warp_key, q);
}

/// Writes C·scale, rounded, to the first `rows` of 32 rows and T::columns columns of a gradient.
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
}  // namespace ch09
