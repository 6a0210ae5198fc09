// Chapter 10, TMA and the pipeline: one warp fetches tiles, the others multiply, and no warp waits for the whole block.
// O and the LSE in one launch, causal or not.
//
// What changes against chapter 8: there every thread computes addresses, copies 16 bytes at a time, and meets all
// others at a barrier once a tile. Here one thread of a warp of its own, the producer, tells TMA, Hopper's tensor
// memory accelerator: "this box of that tensor, to here". TMA computes the addresses, swizzles the rows, and fills what
// lies behind the last row with zeros. The tiles go through a ring of stages. Two barriers in shared memory guard each
// stage: one ends its phase when the bytes have come, the other when every consumer has left. So a fast warp may be a
// tile or two ahead of a slow one, and the copies run ahead of both. What the consumers compute is chapter 8's code.
// What it costs: the program is asynchronous. Each hand-over has a barrier and a parity of its own, a GPU does not say
// which one is wrong, and the kernel runs on Hopper and later only. The producer's warp has as many registers as each
// consumer has, and needs hardly any: a multiprocessor has registers for eight such warps, and seven of them multiply.
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

/// The sizes of the tiles and the warps that multiply; a warp has 32 rows of Q: Br = 32·warps. There is one warp more,
/// the producer: with the first two eight in all, which share the 65536 registers of a multiprocessor. The first is for
/// d = 32 and 64. With d = 128 the registers have no room for so large a part of S beside O: the second. None takes
/// more than 89 KB of shared memory. The last is as small as can be, for tests.
inline constexpr Tiles built[] = {{224, 64, 7}, {224, 32, 7}, {32, 32, 1}};

/// Tiles of K or V that are in shared memory at once: K_j, V_j, and the next two.
inline constexpr int stages = 4;

// In units of log2, m may stay behind a row's maximum by this much, and O is then not rescaled: P is at most 2^8.
inline constexpr float slack = 8;

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. Rows that
/// see no key give O = 0 and an LSE of -inf. Element is half or __nv_bfloat16. std::invalid_argument for sizes that are
/// not built.
template <class Element>
void copy_engine(const ForwardCall<Element>& call, const Tiles& tiles);

/// Bytes of shared memory that a block takes; 0: there is no kernel with these tiles for this d.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

/// to (rounds, 32) = from (rounds, 32), each row the other way round: one warp hands the rows to another through one
/// place in shared memory. The warm-up of exercise 10.1.
void hand_over(const float* from, float* to, int rounds);

/// One tile of 32 rows, from row first_row of head `head` on, of a tensor (heads, N, d): the warm-up of exercises 10.2
/// and 10.3. memory: 32·d elements as they lie in shared memory; tile (32, d): the same, found by `swizzled`. d is 32,
/// 64 or 128.
void one_tile(const half* tensor, int heads, int N, int d, int first_row, int head, half* memory, half* tile);

/// sums (64): of the columns of a tensor (N, 64), of which a producer brings 16 rows at a time to two warps. The
/// warm-up of exercise 10.4.
void sum_columns(const half* tensor, int N, float* sums);

}  // namespace ch10
