// Chapter 4, Q split: the queries of a tile are divided among the warps. O and the LSE in one launch. Three kernels,
// each a small change of the previous one:
//
//   1  plain_split.cu  each warp has 32 rows of Q; the warps share only K and V
//   2  prefetch.cu     the next tile of K and V is copied while the warps compute with this one
//   3  q_split.cu      conditional rescaling, and a different schedule for d = 128: the chapter's kernel
//
// What changes: Part 2 of chapter 3 split the keys of a tile, so the warps combined their maxima, sums and partial O in
// shared memory in every tile. Here each lane runs chapter 2's loop over one row, O stays in registers until the end,
// and a block computes one Q tile, not a head, so that few long sequences fill the GPU too.
// What it costs: each warp reads all of K and V from shared memory; chapter 3's warps read a quarter.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1, Algorithm 1; section 3.2 (the grid); section 3.3 ("split-Q").
// Test it: ./workbook test 4
#pragma once

#include <cstddef>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch04 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The tile sizes and warps per block that are compiled. A warp has 32 rows of Q: Br = 32·warps. At d = 128 the first
/// takes 109 KiB of shared memory, the second 72, the last 32; the first that fits is used.
inline constexpr Tiles built[] = {{128, 64, 4}, {128, 32, 4}, {64, 64, 2}, {32, 32, 1}};
/// The same for kernels 1 and 2.
inline constexpr Tiles built_for_1_and_2[] = {{128, 64, 4}, {32, 32, 1}};

/// m may be this far below a row's maximum, in units of log2, without a rescaling of O. P is then at most 2^8,
/// which fp16 holds with the same relative precision as 1. With 0, m is the maximum. The idea and the threshold:
/// Zadouri et al. 2026 (FlashAttention-4).
inline constexpr float slack = 8;

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. There is no
/// causal mask; chapter 5 adds it. std::invalid_argument for sizes that are not compiled.
void plain_split(const ForwardCall<half>& call, const Tiles& tiles);
void prefetch(const ForwardCall<half>& call, const Tiles& tiles);
void q_split(const ForwardCall<half>& call, const Tiles& tiles);

/// Bytes of shared memory per block.
std::size_t plain_split_bytes(int d, const Tiles& tiles);
std::size_t prefetch_bytes(int d, const Tiles& tiles);
std::size_t q_split_bytes(int d, const Tiles& tiles);

}  // namespace ch04
