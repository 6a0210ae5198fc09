// Chapter 18, given: packed sequences (variable length, "varlen"), as in chapter 15: the sequence of a Q tile.
//
// Source: FlashAttention's varlen functions; `starts` is their cu_seqlens.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch18 {
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

}  // namespace
}  // namespace ch18
