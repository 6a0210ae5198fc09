// Chapter 11, wgmma and ping-pong: four warps multiply as one, and nobody waits for a product that something else could
// run beside. O and the LSE in one launch, causal or not; for Hopper alone (sm_90a).
//
// What changes: in chapter 8 each warp does everything in turn. It starts copies, loads operands into registers,
// multiplies, exponentiates. Here the work is divided.
// - One thread, the producer, starts the copies of whole tiles by TMA. Barriers in shared memory count the
//   bytes that have come.
// - Consumers, groups of four warps, multiply 64 rows of Q each by wgmma. It reads K and V from shared memory by
//   itself, and runs beside the code that has issued it.
// - So a consumer issues S = Q Kᵀ of the next tile and O += P V of this one together, and the softmax of the next tile
//   runs beside O += P V.
// - The consumers issue in turn (ping-pong), so that the softmax of one falls into the products of the others.
// - A block stays. When a tile of queries is done it takes the next one, whose Q, K and V are copied beside the end of
//   the one before.
// S, P, m, l and O lie in registers exactly as in chapter 8, and the softmax is the same text. What it costs: the
// program is asynchronous. Each hand-over has a barrier of its own, and a GPU does not say which one is missing.
//
// Source: Shah et al. 2024 (FlashAttention-3), sections 3.1 and 3.2, Algorithms 1 and 2; PTX ISA, "Asynchronous
// Warpgroup Level Matrix Instructions", "mbarrier" and "Tensor copy".
// Test it: ./workbook test 11
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch11 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The sizes of the tiles and the warps of a block that there are kernels for. Four warps are the producer's; each
/// other four, a consumer, have 64 rows of Q. Bc is as large as the registers allow beside S, P and O, which take
/// Bc / 2, Bc / 4 and d / 2 of them: 128 keys for d = 64, 80 for d = 128. The last one is for short sequences.
inline constexpr Tiles built[] = {{192, 128, 16}, {192, 80, 16}, {128, 64, 12}};
/// The steps to the chapter's kernel, each of which adds one thing to the one before:
/// 1 wgmma, TMA and a producer; one place for a tile of K and one for a tile of V;
/// 2 two places each, a ring of two stages;
/// 3 S of the next tile beside O += P V;
/// 4 the consumers issue in turn;
/// 5 m may stay behind a row's maximum: O is rescaled only where m moves;
/// 6 blocks stay: as many as there are multiprocessors, and each takes one tile of queries after another.
inline constexpr int last_step = 6;

/// Whether there is a kernel for them; of the steps before the last one, only with the tiles for long sequences.
constexpr bool is_built(int d, const Tiles& tiles, int step) {
  if (tiles == built[2]) return step == last_step && (d == 64 || d == 128);
  return d == 64 ? tiles == built[0] : d == 128 && tiles == built[1];
}

// In units of log2, m may stay behind by this much: P is at most 2^8.
inline constexpr float slack = 8;

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel. d is 64 or 128. Rows that see no key give O = 0
/// and an LSE of -inf. Element is half or, for the last step, __nv_bfloat16. The last step has `most_blocks`
/// at most, and counts in `taken`, an int that is 0, how many tiles of queries have been taken beside each one's first.
/// std::invalid_argument for what is not built.
template <class Element>
void attention(const ForwardCall<Element>& call, const Tiles& tiles, int step, int* taken, int most_blocks);

/// Bytes of shared memory that a block takes; 0: no kernel has these tiles.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles, int step);

/// C (64, 64) = A Bᵀ with A and B (64, d), by one group of four warps: the warm-up of exercise 11.1. d is 64 or 128.
void multiply_columns(const half* A, const half* B, float* C, int d);
/// C (64, d) = A B with A (64, 64) and B (64, d).
void multiply_rows(const half* A, const half* B, float* C, int d);
/// rows (128, 32) and columns (128, 32): for each thread of a group, where the 32 elements of its part of D lie.
void places(std::int32_t* rows, std::int32_t* columns);

}  // namespace ch11
