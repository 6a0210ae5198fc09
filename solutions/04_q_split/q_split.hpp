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

#include <cstddef>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch04 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The sizes of the tiles and the warps of a block that there are kernels for; a warp has 32 rows of Q: Br = 32·warps.
inline constexpr Tiles built[] = {{128, 64, 4}, {128, 32, 4}, {64, 64, 2}, {32, 32, 1}};

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. There is no
/// causal mask; chapter 5 adds it. std::invalid_argument for sizes that are not built.
void q_split(const ForwardCall<half>& call, const Tiles& tiles);

/// What a block takes: bytes of shared memory, and how many keys of a tile a warp treats at once.
std::size_t shared_bytes(int d, const Tiles& tiles);
int keys_per_step(int d, const Tiles& tiles);

}  // namespace ch04
