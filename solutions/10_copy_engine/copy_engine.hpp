// Chapter 10, TMA and the pipeline: a warp-specialised forward pass. One warp issues TMA loads, the others multiply,
// and no warp waits for the whole thread block. O and the LSE in one launch, causal or not.
//
// What changes: in chapter 8 every thread computes addresses, copies 16 bytes at a time, and waits at a barrier of the
// whole block once per tile. Here the producer, one thread of a separate warp, issues a TMA load for a whole tile. TMA,
// Hopper's tensor memory accelerator, computes the addresses, swizzles the rows, and fills rows past the last one with
// zeros. The tiles pass through a ring of stages. Each stage has two mbarriers: one ends its phase when the tile has
// been loaded, the other when every consumer has released the stage. So a fast warp may be a tile or two ahead of a
// slow one, and the loads run ahead of both. The consumers compute what chapter 8's warps compute. What it costs: the
// program is asynchronous. Each hand-over has its own mbarrier and parity, a GPU does not report a wrong one, and the
// kernel runs only on Hopper and later. The producer warp has as many registers as each consumer, but needs few: an SM
// has registers for eight such warps, and only seven of them multiply.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3; Shah et al. 2024 (FlashAttention-3), section 3.1; PTX ISA,
// sections "mbarrier", "Tensor copy" and "Proxies".
// Test it: ./workbook test 10
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch10 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The tile sizes and consumer warps for which kernels are built. A consumer has 32 rows of Q, so Br = 32·warps. The
/// producer is one warp more: with seven consumers, eight warps share the 65536 registers of an SM. The first entry is
/// for d = 32 and 64. With d = 128, tiles of 64 keys would spill registers and need 120 KiB of shared memory, so the
/// second entry has 32 keys. No block needs more than 89 KiB. The last entry is the smallest possible, for tests.
inline constexpr Tiles built[] = {{224, 64, 7}, {224, 32, 7}, {32, 32, 1}};

/// The stages of the ring, one tile of K or V each: K_j, V_j, and the next two.
inline constexpr int stages = 4;

// In units of log2, m may be below the row maximum by this much, and O is then not rescaled: P is at most 2^8.
inline constexpr float slack = 8;

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. Fully
/// masked rows have O = 0 and an LSE of -inf. Element is half or __nv_bfloat16. Throws std::invalid_argument for sizes
/// that are not built.
template <class Element>
void copy_engine(const ForwardCall<Element>& call, const Tiles& tiles);

/// Bytes of shared memory per block; 0 if no kernel is built with these tiles for this d.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

/// to (rounds, 32) = from (rounds, 32), each row reversed: one warp hands the rows to another through one slot in
/// shared memory. The warm-up of exercise 10.1.
void hand_over(const float* from, float* to, int rounds);

/// One tile of 32 rows, from row first_row of head `head` on, of a tensor (heads, N, d): the warm-up of exercises 10.2
/// and 10.3. memory: the 32·d elements in the order of shared memory; tile (32, d): the same elements, addressed by
/// `swizzled`. d is 32, 64 or 128.
void one_tile(const half* tensor, int heads, int N, int d, int first_row, int head, half* memory, half* tile);

/// sums (64): the column sums of a tensor (N, 64). A producer loads 16 rows at a time for two consumer warps. The
/// warm-up of exercise 10.4.
void sum_columns(const half* tensor, int N, float* sums);

}  // namespace ch10
