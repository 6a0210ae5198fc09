// Chapter 5, causal: a query sees no key behind its own position, and the kernel does no work for those. O and the LSE
// in one launch.
//
// What changes: a tile of queries goes through the tiles of keys up to the diagonal and no further. Only tiles that the
// diagonal crosses are masked. Since the work of a block now depends on its rows, the longest blocks start first.
// What it costs: in the tiles that are crossed, half of the work is for nothing.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1 ("Causal masking").
// Test it: ./workbook test 5
#pragma once

#include <cstddef>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch05 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The sizes of the tiles and the warps of a block that there are kernels for; a warp has 32 rows of Q: Br = 32·warps.
/// At d = 128 the first takes 109 KiB of shared memory, the second 72, the last 32: the first that fits is taken.
inline constexpr Tiles built[] = {{128, 64, 4}, {128, 32, 4}, {64, 64, 2}, {32, 32, 1}};

/// As in chapter 4: m may stay behind a row's maximum by this much, in units of log2, and O is then not rescaled.
inline constexpr float slack = 8;

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. Rows that
/// see no key give O = 0 and an LSE of -inf. Element is half; chapter 7 makes it bf16. std::invalid_argument for sizes
/// that are not built.
template <class Element>
void causal(const ForwardCall<Element>& call, const Tiles& tiles);

/// What a block takes: bytes of shared memory, and how many keys of a tile a warp treats at once.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);
template <class Element>
int keys_per_step(int d, const Tiles& tiles);

}  // namespace ch05
