// Chapter 18, given: sequences that are packed one after the other, without padding, as in chapter 15. Which of them a
// tile of queries belongs to.
//
// Source: FlashAttention's varlen functions, whose cu_seqlens `starts` is.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch18 {
namespace {

/// The sequence of a tile of queries: its rows in Q, K and V begin at row `first`, there are `length`, and the tile has
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

}  // namespace
}  // namespace ch18
