// Chapter 4, Q split: the queries of a tile are divided among the warps. O and the LSE in one launch.
//
// What changes: chapter 3 divided the keys of a tile, so that maxima, sums and partial O of all warps met in shared
// memory in every tile. Here each warp has 32 rows of Q for itself and goes through all keys: it shares K and V with
// the others and nothing else. A lane owns a row and runs chapter 2's loop over it. O never leaves the registers until
// the end. And a block has one tile of queries, not a head, so that a long sequence fills the GPU too.
// What it costs: each warp reads all of K and V from shared memory, where chapter 3's read a quarter.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1, Algorithm 1; section 3.2 (the grid); section 3.3 ("split-Q").
// Test it: ./workbook test 4
#pragma once

#include "common/attention/shape.hpp"
#include "common/cuda/kernel.hpp"

namespace ch04 {

/// The sizes of the tiles and the warps of a block; a warp has 32 rows of Q: Br = 32·warps. Built are (Br, Bc, warps) =
/// (128, 64, 4), (128, 32, 4), (64, 64, 2) and (32, 32, 1).
struct Tiles {
  int Br = 128, Bc = 64, warps = 4;
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
void q_split(const DeviceCall& call, Tiles tiles = {});

}  // namespace ch04
