// Chapter 11, wgmma and ping-pong: a warp-specialised forward pass in which matmuls, softmax and TMA loads overlap. O
// and the LSE in one launch, causal or not. For Hopper only (sm_90a).
//
// What changes: in chapter 8 each warp does everything in sequence. It copies tiles, loads operands into registers,
// multiplies and exponentiates. Here the work is divided.
// - One producer thread issues TMA loads of whole tiles. mbarriers in shared memory count the bytes that have arrived.
// - Consumer warpgroups multiply 64 rows of Q each by wgmma, which reads K and V from shared memory and runs
//   asynchronously.
// - Intra-warpgroup pipelining: a consumer issues S = Q Kᵀ of the next tile together with O += P V of the current tile,
//   and the softmax of the next tile overlaps with O += P V.
// - Ping-pong schedule: the consumers issue in a fixed cycle, so that the softmax of one consumer overlaps with the
//   matmuls of the others.
// - Persistent thread blocks: a block processes one Q tile after another, and loads the next one during the end of the
//   current one.
// S, P, m, l and O have the register layout of chapter 8, and the softmax is the same code. What it costs: the program
// is asynchronous. Each hand-over needs its own barrier, and a GPU does not report a missing one.
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

/// The tile sizes and warps per block for which kernels are built. Four warps are the producer warpgroup; every
/// further four, a consumer, have 64 rows of Q. S, P and O take Bc / 2, Bc / 4 and d / 2 registers of a thread, and Bc
/// is the largest for which they fit: 128 for d = 64, 80 for d = 128. The last entry is for short sequences.
inline constexpr Tiles built[] = {{192, 128, 16}, {192, 80, 16}, {128, 64, 12}};
/// The versions of the kernel, template argument and option `step`. Each adds one feature:
/// 1 wgmma, TMA loads and a producer; rings of one stage;
/// 2 rings of two stages;
/// 3 S of the next tile overlaps with O += P V;
/// 4 ping-pong;
/// 5 m may be less than a row's maximum by up to `slack`: O is rescaled only when m changes;
/// 6 persistent blocks: at most one per SM, and each processes one Q tile after another.
inline constexpr int last_step = 6;

/// Whether a kernel is built for d, these tiles and this version. Versions before the last one have only the tiles for
/// long sequences.
constexpr bool is_built(int d, const Tiles& tiles, int step) {
  if (tiles == built[2]) return step == last_step && (d == 64 || d == 128);
  return d == 64 ? tiles == built[0] : d == 128 && tiles == built[1];
}

// By how much m may be less than the row maximum, in units of log2: P is at most 2^8.
inline constexpr float slack = 8;

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel. d is 64 or 128. Rows that see no key have O = 0
/// and an LSE of -inf. Element is half or, for the last version, __nv_bfloat16. That version launches at most
/// max_blocks blocks, and its tile scheduler uses `tile_counter`, an int that must be 0. Throws std::invalid_argument
/// for sizes that are not built.
template <class Element>
void attention(const ForwardCall<Element>& call, const Tiles& tiles, int step, int* tile_counter, int max_blocks);

/// Bytes of shared memory per block; 0 if no kernel has these tiles.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles, int step);

/// The warm-up of exercise 11.1, by one warpgroup: C (64, 64) = A Bᵀ with A and B (64, d). d is 64 or 128.
void multiply_K_major(const half* A, const half* B, float* C, int d);
/// C (64, d) = A B with A (64, 64) and B (64, d).
void multiply_MN_major(const half* A, const half* B, float* C, int d);
/// rows (128, 32) and columns (128, 32): the coordinates in D (64, 64) of each thread's 32 elements.
void accumulator_layout(std::int32_t* rows, std::int32_t* columns);

}  // namespace ch11
