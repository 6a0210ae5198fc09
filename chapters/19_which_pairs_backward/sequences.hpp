// Chapter 19, given: sequences that are packed one after the other, without padding, as in chapter 15. Which of them a
// tile of rows belongs to; and the rows of a head where each sequence is filled up to whole tiles.
//
// Source: FlashAttention's varlen functions, whose cu_seqlens `starts` is.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch19 {
namespace {

/// The sequence of a tile of rows: its rows in Q, K and V begin at row `first`, there are `length`, and the tile has
/// number `tile` of theirs.
struct Sequence {
  int first, length, tile;
};

/// The sequence of tile `tile`, counted over all of them: sequence s is rows starts[s] to starts[s + 1] - 1, and has a
/// tile for each Br of its rows.
__device__ inline Sequence sequence_of(const int* __restrict__ starts, int tile, int Br) {
  for (int s = 0;; ++s) {
    const int first = starts[s], length = starts[s + 1] - first, tiles = (length + Br - 1) / Br;
    if (tile < tiles) return {first, length, tile};
    tile -= tiles;
  }
}

// What the queries bring, LSE and D, and the sums of dQ lie in padded rows: those of each sequence, filled up to a
// multiple of 128, which are whole Q tiles of any size.

/// A padded row of a head: its sequence, and the number that it has there; it only fills up if that is not below the
/// sequence's length.
struct PaddedRow {
  Sequence sequence;
  int row;
};
__device__ inline PaddedRow row_of(const int* __restrict__ starts, int Nq, int padded) {
  if (starts == nullptr) return {{0, Nq, 0}, padded};
  const Sequence own = sequence_of(starts, padded / 128, 128);
  return {own, own.tile * 128 + padded % 128};
}
/// How many padded rows are before the sequence that begins at row `first`.
__device__ inline int padded_before(const int* __restrict__ starts, int first) {
  int rows = 0;
  for (int s = 0; starts != nullptr && starts[s] < first; ++s) rows += (starts[s + 1] - starts[s] + 127) / 128 * 128;
  return rows;
}

}  // namespace
}  // namespace ch19
