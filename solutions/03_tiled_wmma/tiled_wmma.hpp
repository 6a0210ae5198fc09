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

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch03 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The sizes of the tiles and the warps of a block that there are kernels for. The first that fits the device's shared
/// memory is the default; KB a block: 64 (T4), 99 (RTX 30, 40 and 50), 163 (A100), 227 (H100, B200).
inline constexpr Tiles built[] = {
    {64, 64, 4},   // from 227 KB on for d = 128, from 163 for d = 64, from 99 for d = 32
    {32, 64, 4},   // 163, 99, 64
    {32, 64, 2},   // 99, 64
    {32, 32, 1},   // 64: d = 128
    {32, 32, 2},   // small, for tests
    {64, 128, 4},  // d <= 64 only; for the measurements of the lesson's last section
};

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. There is no
/// causal mask; chapter 5 adds it. std::invalid_argument for sizes that are not built.
void tiled_wmma(const ForwardCall<half>& call, const Tiles& tiles);

}  // namespace ch03
