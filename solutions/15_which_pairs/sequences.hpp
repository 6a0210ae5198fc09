// Chapter 15: sequences that are packed one after the other, without padding. Which of them a block belongs to.
//
// Source: FlashAttention's varlen functions, whose cu_seqlens `starts` is.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch15 {
namespace {

/// A block's sequence: its rows in Q, K and V begin at row `first`, there are `length`, and the block has number `tile`
/// of their tiles.
struct Sequence {
  int first, length, tile;
};

/// The sequence of block `block`, counted over all of them: sequence s is rows starts[s] to starts[s + 1] - 1, and has
/// a block for each Br of its rows.
__device__ inline Sequence sequence_of(const int* __restrict__ starts, int block, int Br) {
  // TODO(15.8) Go from sequence to sequence, and leave as many blocks behind as each one has (about 5 lines).
  // BEGIN 15.8
  for (int s = 0;; ++s) {
    const int first = starts[s], length = starts[s + 1] - first, blocks = (length + Br - 1) / Br;
    if (block < blocks) return {first, length, block};
    block -= blocks;
  }
  // END 15.8
}

}  // namespace
}  // namespace ch15
