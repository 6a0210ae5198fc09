// Chapter 3, tiled WMMA: the first fused kernel. O and the LSE in one launch; S and P never leave the chip.
//
// What changes: chapter 2's loop runs on tensor cores. A thread block takes a Q tile, loads one K/V tile after another
// into shared memory, and multiplies on tensor cores. The warps split the *keys* of a tile, and one block loops over
// all Q tiles of a head: the partition and the grid of FlashAttention-1. (Its published loop has the keys outermost;
// here, as in later implementations, the queries are outermost, so O is written once.) What it costs: no warp has all
// keys of a tile, so the warps combine maxima, sums and partial O through shared memory in every tile. Chapter 4
// removes that.
//
// Source: Dao et al. 2022, section 3.1, Algorithm 1; Dao 2023, section 3.3 ("split-K") and section 3.2 (the grid).
// Test it: ./workbook test 3
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch03 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The tile sizes and warps per thread block that kernels are built for. The first that fits the device's shared memory
/// is the default. Shared memory per block: 64 KiB (T4), 99 (RTX 30, 40 and 50), 163 (A100), 227 (H100, B200).
inline constexpr Tiles built[] = {
    {64, 64, 4},   // from 227 KiB on for d = 128, from 163 for d = 64, from 99 for d = 32
    {32, 64, 4},   // 163, 99, 64
    {32, 64, 2},   // 99, 64
    {32, 32, 1},   // 64: d = 128
    {32, 32, 2},   // small tiles for tests
    {64, 128, 4},  // d <= 64 only; for the lesson's measurements
};

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. There is no
/// causal mask; chapter 5 adds it. Throws std::invalid_argument for sizes that are not built.
void tiled_wmma(const ForwardCall<half>& call, const Tiles& tiles);

}  // namespace ch03
