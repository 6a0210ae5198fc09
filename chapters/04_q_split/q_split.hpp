// Chapter 4, Q split: the queries of a tile are divided among the warps. O and the LSE in one launch; three kernels,
// each a small step from the one before.
//
//   1  plain_split.cu  each warp has 32 rows of Q for itself, and shares K and V and nothing else
//   2  prefetch.cu     the next tile of K and V is copied while the warps compute with this one
//   3  q_split.cu      m may stay behind; with d = 128 a schedule of its own: the chapter's kernel
//
// What changes: chapter 3 divided the keys of a tile, so that maxima, sums and partial O of all warps met in shared
// memory in every tile. Here a lane owns a row and runs chapter 2's loop over it, O stays in registers until the end,
// and a block has one tile of queries, not a head, so that a long sequence fills the GPU too.
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
/// At d = 128 the first takes 109 KiB of shared memory, the second 72, the last 32: the first that fits is taken.
inline constexpr Tiles built[] = {{128, 64, 4}, {128, 32, 4}, {64, 64, 2}, {32, 32, 1}};
/// Those of kernels 1 and 2.
inline constexpr Tiles built_before[] = {{128, 64, 4}, {32, 32, 1}};

/// m may stay behind a row's maximum by this much, in units of log2, and O is then not rescaled: P is at most 2^8, and
/// fp16 is as exact there as it is at 1. 0 would keep m at the maximum. The idea and the number: Zadouri et al. 2026
/// (FlashAttention-4).
inline constexpr float slack = 8;

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. There is no
/// causal mask; chapter 5 adds it. std::invalid_argument for sizes that are not built.
void plain_split(const ForwardCall<half>& call, const Tiles& tiles);
void prefetch(const ForwardCall<half>& call, const Tiles& tiles);
void q_split(const ForwardCall<half>& call, const Tiles& tiles);

/// Bytes of shared memory that a block of each takes.
std::size_t plain_split_bytes(int d, const Tiles& tiles);
std::size_t prefetch_bytes(int d, const Tiles& tiles);
std::size_t q_split_bytes(int d, const Tiles& tiles);

/// How many keys of a tile a warp treats at once, in kernel 3; in the others 32.
int keys_per_step(int d, const Tiles& tiles);

}  // namespace ch04
