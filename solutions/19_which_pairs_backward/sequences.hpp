// Chapter 19, given: packed sequences (variable length, "varlen"), as in chapter 15: the sequence of a tile, and padded
// rows.
//
// Source: FlashAttention's varlen functions; `starts` is their cu_seqlens.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch19 {
namespace {

/// The sequence of a tile: its `length` rows in Q, K and V start at row `first`, and the tile is tile `tile` of them.
struct Sequence {
  int first, length, tile;
};

/// The sequence of tile `tile`, counted over all sequences. Sequence s has rows starts[s] to starts[s + 1] - 1 and one
/// tile per Br rows.
__device__ inline Sequence sequence_of(const int* __restrict__ starts, int tile, int Br) {
  for (int s = 0;; ++s) {
    const int first = starts[s], length = starts[s + 1] - first, tiles = (length + Br - 1) / Br;
    if (tile < tiles) return {first, length, tile};
    tile -= tiles;
  }
}

// LSE, D and the sums of dQ have padded rows: the rows of each sequence are padded to a multiple of 128, which is a
// whole number of Q tiles of either size.

/// The sequence of a padded row, and its row in that sequence. If `row` is not below the sequence's length, it is
/// padding.
struct PaddedRow {
  Sequence sequence;
  int row;
};
__device__ inline PaddedRow row_of(const int* __restrict__ starts, int Nq, int padded) {
  if (starts == nullptr) return {{0, Nq, 0}, padded};
  const Sequence sequence = sequence_of(starts, padded / 128, 128);
  return {sequence, sequence.tile * 128 + padded % 128};
}
/// The number of padded rows before the sequence that starts at row `first`.
__device__ inline int padded_before(const int* __restrict__ starts, int first) {
  int rows = 0;
  for (int s = 0; starts != nullptr && starts[s] < first; ++s) rows += (starts[s + 1] - starts[s] + 127) / 128 * 128;
  return rows;
}

}  // namespace
}  // namespace ch19
