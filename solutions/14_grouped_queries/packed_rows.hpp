// Chapter 14: tiles whose rows come from all heads of a group. The query and head of a packed row, loading its row of Q
// into shared memory, the keys that it attends to, and storing its O and LSE.
//
// Source: FlashAttention-3, hopper/pack_gqa.h: the same order of rows.
#pragma once

#include <cstdint>

#include "phases.hpp"

namespace ch14 {
namespace {

/// The heads·Nq rows of `heads` packed heads of Q, each with Nq queries. heads = 1: not packed.
struct PackedRows {
  int heads, Nq;
  __device__ int count() const { return heads * Nq; }
  // Row r is query r / heads of head r % heads. The queries of a tile are then adjacent and attend to nearly the same
  // keys. (In the other order, all queries of head 0 first, a tile may hold queries from both ends of the sequence.)
  //
  // TODO(14.2) The query of a row; and the index of the row in memory, where rows are stored head by head, (heads, Nq)
  // (2 lines).
  // STUB: __device__ int query(int row) const { WORKBOOK_TODO(14.2); }
  // STUB: __device__ std::int64_t memory_row(int row) const { WORKBOOK_TODO(14.2); }
  // BEGIN 14.2
  __device__ int query(int row) const { return heads == 1 ? row : row / heads; }  // a division is slow
  __device__ std::int64_t memory_row(int row) const { return std::int64_t(row - heads * query(row)) * Nq + query(row); }
  // END 14.2
};

/// Starts to copy the 32 packed rows from first_row on into a tile, (32, d). One warp calls it. Rows past the last one
/// become zeros. Q is at the first packed head.
template <class Element, int d>
__device__ __forceinline__ void load_rows(Element (&tile)[32][d], const Element* __restrict__ Q, const PackedRows& rows,
                                          int first_row) {
  const int lane = threadIdx.x % 32, chunk = lane % (d / 8);
  // TODO(14.3) d / 8 lanes copy a row, 16 bytes each. Do not read rows that do not exist, and do not call memory_row
  // for them (about 6 lines).
  // BEGIN 14.3
#pragma unroll
  for (int i = lane / (d / 8); i < 32; i += 32 / (d / 8)) {
    const bool exists = first_row + i < rows.count();
    const std::int64_t row = exists ? rows.memory_row(first_row + i) : 0;
    cp_async_16(swizzled(tile, i, chunk), Q + row * d + 8 * chunk, exists ? 16 : 0);
  }
  // END 14.3
}

/// The keys that packed rows attend to: all Nk, or with the causal mask, for query i, the keys j <= i + (Nk - Nq).
struct RowMask {
  int Nk;
  bool causal;
  // TODO(14.4) The number of keys that a row attends to, at least 0. And the number of tiles of Bc keys that the `rows`
  // rows from first_row on need together; the last of these rows may not exist (about 7 lines).
  // STUB: __device__ int visible_keys(const PackedRows& packed, int row) const { WORKBOOK_TODO(14.4); }
  // STUB: template <int Bc>
  // STUB: __device__ int kv_tiles(const PackedRows& packed, int first_row, int rows) const { WORKBOOK_TODO(14.4); }
  // BEGIN 14.4
  __device__ int visible_keys(const PackedRows& packed, int row) const {
    return causal ? max(0, packed.query(row) + 1 + Nk - packed.Nq) : Nk;
  }
  template <int Bc>
  __device__ int kv_tiles(const PackedRows& packed, int first_row, int rows) const {
    const int last_row = min(first_row + rows, packed.count()) - 1;  // later queries attend to more keys
    return (visible_keys(packed, last_row) + Bc - 1) / Bc;
  }
  // END 14.4
};

/// The mask of a warp's rows, which start at first_row. Every row attends to the first visible_to_all keys. The number
/// of keys of a single row is needed in masked tiles only, which are few, so it is computed there and not kept in
/// registers.
struct WarpMask {
  RowMask mask;
  PackedRows rows;
  int first_row, visible_to_all;
  __device__ int visible_keys(int row) const {
    return min(mask.visible_keys(rows, first_row + row), mask.Nk);  // more than Nk if the row does not exist
  }
};
__device__ __forceinline__ WarpMask mask_of_warp(const RowMask& mask, const PackedRows& rows, int first_row) {
  WarpMask warp_mask{mask, rows, first_row, 0};
  warp_mask.visible_to_all = warp_mask.visible_keys(0);  // later rows attend to at least as many keys
  return warp_mask;
}

/// S·scale for the Bc keys from first_key on, and -inf for masked pairs.
template <int Bc>
__device__ __forceinline__ void scale_and_mask(Scores<Bc> (&S)[row_tiles], float scale, const WarpMask& mask,
                                               int first_key) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int visible = mask.visible_keys(16 * i + position_in_part(lane, e).row) - first_key;
#pragma unroll
      for (int j = 0; j < Bc / 8; ++j)
        S[i][j][e] = 8 * j + position_in_part(lane, e).column < visible ? S[i][j][e] * scale : -INFINITY;
    }
}

/// S of a tile becomes the exponents of P; O and l are rescaled to the new m. If every row attends to all keys of the
/// tile, subtract_maximum scales S. It needs a scale > 0; for other scales, scale_and_mask does it.
template <class Element, int d, int Bc>
__device__ __forceinline__ void move_to_maximum(Registers<Element, d>& registers, Scores<Bc> (&S)[row_tiles],
                                                float scale, const WarpMask& mask, int tile) {
  const bool masked = mask.visible_to_all < (tile + 1) * Bc, scaled = masked || scale <= 0;
  if (masked) workbook::cuda::note("masked tile", tile);
  if (scaled) scale_and_mask<Bc>(S, scale, mask, tile * Bc);
  float rescale[row_tiles][2];
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
    subtract_maximum(S[i], registers.m[i], registers.l[i], rescale[i], scaled ? 1 : scale);
  rescale_O(registers, rescale, tile);
}

/// Writes O, which is in shared memory, (32, d), and the LSE of the lane's rows to device memory, 16 bytes per lane. O
/// and lse are at the first packed head. row_lse[i][r]: the LSE of row 16·i + position_in_part(lane, 2·r).row.
template <class Element, int d>
__device__ __forceinline__ void store_rows(Element (&tile)[32][d], const float (&row_lse)[row_tiles][2],
                                           Element* __restrict__ O, float* __restrict__ lse, const PackedRows& rows,
                                           int first_row) {
  const int lane = threadIdx.x % 32, chunk = lane % (d / 8);
  // TODO(14.5) Store the existing rows of O, with the loop of load_rows. One lane of each quad stores the LSE of its
  // existing rows (about 10 lines).
  // BEGIN 14.5
#pragma unroll
  for (int i = lane / (d / 8); i < 32; i += 32 / (d / 8))
    if (first_row + i < rows.count())
      reinterpret_cast<uint4*>(O)[rows.memory_row(first_row + i) * (d / 8) + chunk] =
          *reinterpret_cast<uint4*>(swizzled(tile, i, chunk));
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = first_row + 16 * i + position_in_part(lane, 2 * r).row;
      if (lane % 4 == 0 && row < rows.count()) lse[rows.memory_row(row)] = row_lse[i][r];
    }
  // END 14.5
}

}  // namespace
}  // namespace ch14
