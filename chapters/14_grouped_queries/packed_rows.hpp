// Chapter 14: the rows of a tile, taken from the heads of a group. Which query and head a row is, how its part of Q
// comes into shared memory, which keys it sees, and where its O and LSE go.
//
// Source: FlashAttention-3, hopper/pack_gqa.h: the same order of rows.
#pragma once

#include <cstdint>

#include "phases.hpp"

namespace ch14 {
namespace {

/// `heads` heads of Q that are packed, each with Nq queries: heads·Nq rows. One head is packed with nobody.
struct PackedRows {
  int heads, Nq;
  __device__ int count() const { return heads * Nq; }
  // Row r is query r / heads of head r % heads: the queries of a tile are neighbours, and so the keys that they see are
  // nearly the same. (The other order, all queries of head 0 first, would give the rows of one tile queries from both
  // ends of the sequence.)
  //
  // TODO(14.2) The query of a row; and its place among the rows of (heads, Nq) as they are in memory, head by head (2
  // lines).
  // BEGIN 14.2
  __device__ int query(int row) const { WORKBOOK_TODO(14.2); }
  __device__ std::int64_t place(int row) const { WORKBOOK_TODO(14.2); }
  // END 14.2
};

/// Starts to copy 32 packed rows from first_row on, (32, d), by one warp; rows behind the last one become zeros. Q is
/// the first packed head's.
template <class Element, int d>
__device__ __forceinline__ void load_rows(Element (&tile)[32][d], const Element* __restrict__ Q, const PackedRows& rows,
                                          int first_row) {
  const int lane = threadIdx.x % 32, chunk = lane % (d / 8);
  // TODO(14.3) d / 8 lanes copy a row, 16 bytes each. A row that does not exist is not read, and has no place (about 6
  // lines).
  // BEGIN 14.3
  WORKBOOK_TODO(14.3);
  // END 14.3
}

/// Which keys rows see: the first Nk, with the causal mask query i those with j <= i + (Nk - Nq).
struct SeenKeys {
  int Nk;
  bool causal;
  // TODO(14.4) How many keys a row sees, at least 0. And how many tiles of Bc keys the rows first_row to first_row +
  // rows - 1 need together, of which the last ones may not exist (about 7 lines).
  // BEGIN 14.4
  __device__ int of(const PackedRows& packed, int row) const { WORKBOOK_TODO(14.4); }
  template <int Bc>
  __device__ int tiles(const PackedRows& packed, int first_row, int rows) const { WORKBOOK_TODO(14.4); }
  // END 14.4
};

/// S·scale, and -inf for keys that a row does not see: row r of row tile i sees the first ends[i][r] keys of the tile.
template <int Bc>
__device__ __forceinline__ void scale_and_mask(Scores<Bc> (&S)[row_tiles], float scale,
                                               const int (&ends)[row_tiles][2]) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e)
#pragma unroll
      for (int j = 0; j < Bc / 8; ++j) {
        const int key = 8 * j + place_in_D(lane, e).column;
        S[i][j][e] = key < ends[i][e / 2] ? S[i][j][e] * scale : -INFINITY;
      }
}

/// O, which is in shared memory, (32, d), and the LSE of the lane's rows go to device memory: 16 bytes a lane. O and
/// lse are the first packed head's.
template <class Element, int d>
__device__ __forceinline__ void store_rows(Element (&tile)[32][d], const float (&row_lse)[row_tiles][2],
                                           Element* __restrict__ O, float* __restrict__ lse, const PackedRows& rows,
                                           int first_row) {
  const int lane = threadIdx.x % 32, chunk = lane % (d / 8);
  // TODO(14.5) The rows of O that exist, as they were loaded; and, by one lane of each quad, the LSE of those of its
  // rows that exist (about 10 lines).
  // BEGIN 14.5
  WORKBOOK_TODO(14.5);
  // END 14.5
}

}  // namespace
}  // namespace ch14
