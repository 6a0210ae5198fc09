// Chapter 3, tiled WMMA: the first fused kernel. O and the LSE in one launch; S and P never leave the chip.
//
// What changes: chapter 2's loop runs on a GPU. A block of warps takes a tile of queries, brings one K/V tile after the
// other into shared memory, and multiplies on tensor cores. The warps split the *keys* of a tile, and one block walks
// all query tiles of a head: the partition and the grid of FlashAttention-1. (Its published loop has the keys
// outermost; here, as in all later implementations, the queries are, so that O is written once.)
// What it costs: no warp has seen all keys of a tile, so that maxima, sums and partial O are combined through shared
// memory in every tile. Chapter 4 removes that.
//
// Source: Dao et al. 2022, section 3.1, Algorithm 1; Dao 2023, section 3.3 ("split-K") and section 3.2 (the grid).
// Test it: ./workbook test 3
#pragma once

#include "common/attention/shape.hpp"
#include "common/cuda/kernel.hpp"

namespace ch03 {

/// The sizes of the tiles and the warps of a block. Built are (Br, Bc, warps) = (64, 64, 4), (32, 64, 4), (32, 64, 2),
/// (32, 32, 2) and, for d <= 64, (64, 128, 4).
struct Tiles {
  int Br = 64, Bc = 64, warps = 4;
};

/// Tensors in device memory, as workbook::Shape describes them, 16-byte aligned.
struct DeviceCall {
  workbook::Shape shape;
  float scale;  ///< multiplies QKᵀ, usually 1/√d
  bool causal;  ///< refused until chapter 5
  const half *Q, *K, *V;
  half* O;
  float* lse;
};

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128.
/// std::invalid_argument for a call that it does not take.
void tiled_wmma(const DeviceCall& call, Tiles tiles = {});

}  // namespace ch03
