// Chapter 9: what a thread block keeps in shared memory, and the phases of the kernel for one Q tile.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2.
// Test it: ./workbook test 9
#pragma once

#include "fragments.hpp"

namespace ch09 {
namespace {

constexpr float log2_e = 1.4426950408889634f;

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
struct Shared {
  Element K[T::Bc][T::d], V[T::Bc][T::d];
  Element Q[2][T::Br][T::d], dO[2][T::Br][T::d];
  Element P[T::team == 1 ? 1 : T::Bc][T::Br], dS[2][T::Bc][T::Br];  // Pᵀ and dSᵀ: a row is a key
  float2 rows[2][T::Br];
  int ticket;
  SHARED_LAYOUT(Shared, K, V, Q, dO, P, dS, rows, ticket);
};

/// Starts to copy rows x d elements from device memory into a tile; the rest of the tile becomes zeros.
template <int threads, int tile_rows, int d>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][d], const Element* __restrict__ source, int rows) {
  const int first_row = threadIdx.x / (d / 8), chunk = threadIdx.x % (d / 8);
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / (d / 8)) {
    const int row = first_row + i;
    cp_async_16(swizzled(tile, row, chunk), source + row * d + 8 * chunk, row < rows ? 16 : 0);
  }
}

/// Starts to copy Q tile i of a head's Q and dO, (Br, d) each, and what its queries bring, to place i % 2.
template <class T>
__device__ __forceinline__ void load_q_tile(Shared<T>& smem, const Element* __restrict__ Q,
                                               const Element* __restrict__ dO, const float2* __restrict__ rows, int i,
                                               int Nq) {
  const std::int64_t first = std::int64_t(i) * T::Br * T::d;
  load_tile<T::threads>(smem.Q[i % 2], Q + first, Nq - i * T::Br);
  load_tile<T::threads>(smem.dO[i % 2], dO + first, Nq - i * T::Br);
  const int query = 2 * threadIdx.x;  // 16 bytes are what two queries bring; `rows` is filled up to whole Q tiles
  if (query < T::Br) cp_async_16(&smem.rows[i % 2][query], rows + i * T::Br + query);
}

/// C = A Bᵀ of 32 rows of tile A and 8·parts rows of tile B: (32, d), (8·parts, d) -> (32, 8·parts). A row of B becomes
/// a column of C.
template <int parts, int A_rows, int B_rows, int d>
__device__ __forceinline__ void multiply_transposed(Result<parts>& C, Element (&A)[A_rows][d], int A_row,
                                                    Element (&B)[B_rows][d], int B_row) {
  // TODO(9.2) For each 16 columns of A and B: both row tiles of A once, each 16 rows of B once (about 10 lines).
  // BEGIN 9.2
  WORKBOOK_TODO(9.2);
  // END 9.2
}

/// Which pairs of a key and a query count, both numbered from the first of those whose P a warp forms: key k counts for
/// query q if it exists, k < keys, and if q sees it, k <= q + diagonal.
struct Mask {
  bool needed;  // false: every pair counts
  int keys, diagonal;
};

/// Sᵀ -> Pᵀ = exp2(S·scale - LSE) and dPᵀ -> dSᵀ = P∘(dP - D), (32, 8·parts), all in fp32. scale holds log2(e). rows:
/// what the queries bring, LSE·log2(e) in x and D in y. Where a pair does not count, P and dS are 0.
template <int parts>
__device__ __forceinline__ void form_P_and_dS(Result<parts>& S, Result<parts>& dP, const float2* rows, float scale,
                                              const Mask& mask) {
  // TODO(9.3) A column is a query: a lane has two neighbouring ones of each eight, 16 bytes of rows (about 13 lines).
  // BEGIN 9.3
  WORKBOOK_TODO(9.3);
  // END 9.3
}

// The causal mask from the side of the keys: query i of a head sees the keys of this K/V tile up to i + diagonal,
// numbered from its first one on. `keys` of them exist, more than Bc if others follow.
//
// TODO(9.4) The first Q tile with a query that sees any key of the K/V tile; it may be one that does not exist.
// Then the mask of Q tile i for the keys from `own` on and the queries from q on, both within their blocks. It is
// needed where some query of the Q tile does not see some key of the K/V tile, or a key does not exist (about 6
// lines).
// BEGIN 9.4
template <class T>
__device__ __forceinline__ int first_q_tile(int diagonal, bool causal) {
  WORKBOOK_TODO(9.4);
}
template <class T>
__device__ __forceinline__ Mask mask_of(int i, int own, int q, int keys, int diagonal, bool causal) {
  WORKBOOK_TODO(9.4);
}
// END 9.4

// Two parts (16, 8) side by side, rounded, lie where a left operand (16, 16) wants them: chapter 8's identity. So Pᵀ
// and dSᵀ become left operands where they are, and what they are multiplied with is loaded by rows.
//
// TODO(9.5) The operands of a result; and C += A B from them: (32, 8·parts), (8·parts, 8·n) -> (32, 8·n), where B is
// the tile from this row and column on (about 13 lines).
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

// What others need of a warp's Pᵀ and dSᵀ goes to shared memory as it is, a row for each key, and comes back as it was.
//
// TODO(9.6) The operands of (32, 8·parts) to a tile, from this row and column on, by stmatrix_x4, whose lanes name the
// rows that load_A's name; and back (about 10 lines).
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

/// P and dS of this warp's keys, from `own` on, and of the queries from q on of Q tile i, as
/// operands. dSᵀ is stored for dQ, Pᵀ for the other warp of a team.
template <class T>
__device__ __forceinline__ void form_operands(Operands<T::parts>& P, Operands<T::parts>& dS, Shared<T>& smem, int i,
                                              int own, int q, float scale, const Mask& mask) {
  Result<T::parts> S_own, dP_own;
  multiply_transposed<T::parts>(S_own, smem.K, own, smem.Q[i % 2], q);    // Sᵀ = K Qᵀ, (32, queries)
  multiply_transposed<T::parts>(dP_own, smem.V, own, smem.dO[i % 2], q);  // dPᵀ = V dOᵀ, (32, queries)
  if (mask.needed) {
    workbook::cuda::note("masked tile", i);
    form_P_and_dS<T::parts>(S_own, dP_own, smem.rows[i % 2] + q, scale, mask);
  } else {
    form_P_and_dS<T::parts>(S_own, dP_own, smem.rows[i % 2] + q, scale, {false, 0, 0});  // nothing to compare
  }
  round_to_operands<T::parts>(P, S_own);
  round_to_operands<T::parts>(dS, dP_own);
  store_operands<T::parts>(smem.dS[i % 2], own, q, dS);
  if constexpr (T::team == 2) store_operands<T::parts>(smem.P, own, q, P);
}

/// P and dS of the team's keys and of the queries from q on, which the other warp of the team forms and stores.
template <class T>
__device__ __forceinline__ void take_operands(Operands<T::parts>& P, Operands<T::parts>& dS, Shared<T>& smem, int i,
                                              int own, int q) {
  workbook::cuda::barrier_sync(1 + own / 32, 64);  // the team's two warps have stored P and dS
  load_operands<T::parts>(P, smem.P, own, q);
  load_operands<T::parts>(dS, smem.dS[i % 2], own, q);
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
      const auto [row, column] = place_in_part(lane, e);
      if (16 * i + row >= rows) continue;
#pragma unroll
      for (int j = 0; j < T::columns / 8; ++j)
        *reinterpret_cast<std::uint32_t*>(gradient + (16 * i + row) * T::d + 8 * j + column) =
            cvt_rn_x2<Element>(C[i][j][e] * scale, C[i][j][e + 1] * scale);
    }
}

}  // namespace
}  // namespace ch09
