// Chapter 5, the causal mask: chapter 4's kernel without the tiles above the diagonal. O and the LSE in one launch.
//
// What changes: a Q tile loops over the K/V tiles up to the diagonal only, and the mask is applied only to the tiles
// that the diagonal crosses. The work of a block now depends on its Q tile, so the longest blocks start first.
// What it costs: about half of the work in the tiles that the diagonal crosses is wasted.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1 ("Causal masking").
// Test it: ./workbook test 5
#pragma once

#include <cstddef>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch05 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The tile sizes and warps per block that are compiled. A warp has 32 rows of Q: Br = 32·warps. At d = 128 the first
/// takes 109 KiB of shared memory, the second 72, the last 32; the first that fits is used.
inline constexpr Tiles built[] = {{128, 64, 4}, {128, 32, 4}, {64, 64, 2}, {32, 32, 1}};

/// As in chapter 4: m may lag a row's maximum by this much, in units of log2, without a rescaling of O.
inline constexpr float slack = 8;

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. A row
/// without a visible key gets O = 0 and an LSE of -inf. Element is half, in chapter 7 bf16. std::invalid_argument for
/// sizes that are not compiled.
template <class Element>
void causal(const ForwardCall<Element>& call, const Tiles& tiles);

/// Bytes of shared memory per block.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch05
