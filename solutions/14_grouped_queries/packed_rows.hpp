// Chapter 14: the rows of a tile, taken from the heads of a group. Which query and head a row is, how its part of Q
// comes into shared memory, which keys it sees, and where its O and LSE go.
//
// Source: FlashAttention-3, hopper/pack_gqa.h: the same order of rows.
#pragma once

#include <cstdint>

#include "phases.hpp"

namespace ch14 {
namespace {

/// `heads` heads of Q that are packed, each with Nq queries: heads·Nq rows. One head is packed with no other.
struct PackedRows {
  int heads, Nq;
  __device__ int count() const { return heads * Nq; }
  // Row r is query r / heads of head r % heads: the queries of a tile are neighbours, and so the keys that they see are
  // nearly the same. (The other order, all queries of head 0 first, would give the rows of one tile queries from both
  // ends of the sequence.)
  //
  // TODO(14.2) The query of a row; and its place among the rows of (heads, Nq) as they are in memory, head by head (2
  // lines).
  // STUB: __device__ int query(int row) const { WORKBOOK_TODO(14.2); }
  // STUB: __device__ std::int64_t place(int row) const { WORKBOOK_TODO(14.2); }
  // BEGIN 14.2
  __device__ int query(int row) const { return heads == 1 ? row : row / heads; }  // a division is slow
  __device__ std::int64_t place(int row) const { return std::int64_t(row - heads * query(row)) * Nq + query(row); }
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
#pragma unroll
  for (int i = lane / (d / 8); i < 32; i += 32 / (d / 8)) {
    const bool exists = first_row + i < rows.count();
    const std::int64_t place = exists ? rows.place(first_row + i) : 0;
    cp_async_16(swizzled(tile, i, chunk), Q + place * d + 8 * chunk, exists ? 16 : 0);
  }
  // END 14.3
}

/// Which keys rows see: the first Nk, with the causal mask query i those with j <= i + (Nk - Nq).
struct SeenKeys {
  int Nk;
  bool causal;
  // TODO(14.4) How many keys a row sees, at least 0. And how many tiles of Bc keys the rows first_row to first_row +
  // rows - 1 need together, of which the last ones may not exist (about 7 lines).
  // STUB: __device__ int of(const PackedRows& packed, int row) const { WORKBOOK_TODO(14.4); }
  // STUB: template <int Bc>
  // STUB: __device__ int tiles(const PackedRows& packed, int first_row, int rows) const { WORKBOOK_TODO(14.4); }
  // BEGIN 14.4
  __device__ int of(const PackedRows& packed, int row) const {
    return causal ? max(0, packed.query(row) + 1 + Nk - packed.Nq) : Nk;
  }
  template <int Bc>
  __device__ int tiles(const PackedRows& packed, int first_row, int rows) const {
    const int last_row = min(first_row + rows, packed.count()) - 1;  // later queries see more keys
    return (of(packed, last_row) + Bc - 1) / Bc;
  }
  // END 14.4
};

/// How many keys the rows of a warp see, which begin at first_row: each of them, and all. Only masked tiles ask for
/// each, and there are few, so that no registers hold these numbers.
struct Ends {
  SeenKeys seen;
  PackedRows rows;
  int first_row, of_all;
  __device__ int of(int row) const {
    return min(seen.of(rows, first_row + row), seen.Nk);  // rows that do not exist may exceed Nk
  }
};
__device__ __forceinline__ Ends ends_of(const SeenKeys& seen, const PackedRows& rows, int first_row) {
  Ends ends{seen, rows, first_row, 0};
  ends.of_all = ends.of(0);  // later rows see no fewer
  return ends;
}

/// S·scale of the Bc keys from first_key on, and -inf for keys that a row does not see.
template <int Bc>
__device__ __forceinline__ void scale_and_mask(Scores<Bc> (&S)[row_tiles], float scale, const Ends& ends,
                                               int first_key) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int end = ends.of(16 * i + place_in_D(lane, e).row) - first_key;
#pragma unroll
      for (int j = 0; j < Bc / 8; ++j)
        S[i][j][e] = 8 * j + place_in_D(lane, e).column < end ? S[i][j][e] * scale : -INFINITY;
    }
}

/// S of tile `tile` becomes the exponents of P; O and l are brought to the new m. A tile of which every row sees all
/// keys is not masked, and subtract_maximum scales it. That wants a scale > 0, so that other scales take the way of the
/// mask.
template <class Element, int d, int Bc>
__device__ __forceinline__ void move_to_maximum(Registers<Element, d>& own, Scores<Bc> (&S)[row_tiles], float scale,
                                                const Ends& ends, int tile) {
  const bool masked = ends.of_all < (tile + 1) * Bc, scaled = masked || scale <= 0;
  if (masked) workbook::cuda::note("masked tile", tile);
  if (scaled) scale_and_mask<Bc>(S, scale, ends, tile * Bc);
  float rescale[row_tiles][2];
#pragma unroll
  for (int i = 0; i < row_tiles; ++i) subtract_maximum(S[i], own.m[i], own.l[i], rescale[i], scaled ? 1 : scale);
  rescale_O(own, rescale, tile);
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
#pragma unroll
  for (int i = lane / (d / 8); i < 32; i += 32 / (d / 8))
    if (first_row + i < rows.count())
      reinterpret_cast<uint4*>(O)[rows.place(first_row + i) * (d / 8) + chunk] =
          *reinterpret_cast<uint4*>(swizzled(tile, i, chunk));
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first_row + 16 * i + place_in_D(lane, 2 * r).row;
      if (lane % 4 == 0 && row < rows.count()) lse[rows.place(row)] = row_lse[i][r];
    }
  // END 14.5
}

}  // namespace
}  // namespace ch14
