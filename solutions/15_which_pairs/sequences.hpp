// Chapter 15: packed sequences (variable length, "varlen"): sequences stored one after the other, without padding.
//
// Source: FlashAttention's varlen functions; `starts` is their cu_seqlens.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch15 {
namespace {

/// The sequence of a thread block: its `length` rows in Q, K and V start at row `first`, and the block has tile `tile`
/// of them.
struct Sequence {
  int first, length, tile;
};

/// The sequence of thread block `block`, counted over all sequences. Sequence s has rows starts[s] to starts[s + 1] - 1
/// and one block per tile of Br rows.
__device__ inline Sequence sequence_of(const int* __restrict__ starts, int block, int Br) {
  // TODO(15.8) Loop over the sequences and subtract the number of blocks of each from `block` (about 5 lines).
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
