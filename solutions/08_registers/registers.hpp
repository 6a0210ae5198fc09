// Chapter 8, registers: the scores never leave the registers. O and the LSE in one launch, causal or not.
//
// What changes: WMMA does not say which lane holds which element. So in chapters 4 and 5 S went through shared memory
// to the lane that owns its row, and P went back the same way. Here the instructions below WMMA are written out.
// mma.m16n8k16 leaves a row of S with four neighbouring lanes, a quad. A row's maximum is two shuffles within the quad;
// m and l live there too; and P does not move at all, because what a lane holds of two neighbouring tiles of S is what
// the next product takes as its left operand. ldmatrix loads Q, K and V from rows that are swizzled in place of padded,
// so that shared memory has room for two stages of K and V for d = 128 too. The same text is compiled for fp16 and
// bf16. What it costs: the places of an instruction's operands stand in the text now, and the kernel runs only where
// that instruction exists (Ampere and later).
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3; PTX ISA, sections "Matrix fragments for mma.m16n8k16",
// "ldmatrix" and "stmatrix".
// Test it: ./workbook test 8
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch08 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The sizes of the tiles and the warps of a block that there are kernels for; a warp has 32 rows of Q: Br = 32·warps.
/// For d = 128 they take 96 and 40 KB of shared memory.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

// In units of log2, m may stay behind a row's maximum by this much, and O is then not rescaled: P is at most 2^8.
inline constexpr float slack = 8;

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. Rows that
/// see no key give O = 0 and an LSE of -inf. Element is half or __nv_bfloat16. std::invalid_argument for sizes that are
/// not built.
template <class Element>
void registers(const ForwardCall<Element>& call, const Tiles& tiles);

/// Bytes of shared memory that a block takes.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

/// D (16, 8) = A (16, 16) · B (16, 8), all row-major, by one warp: the warm-up of exercise 8.1.
void multiply(const half* A, const half* B, float* D);
/// rows (32, 16) and columns (32, 16): for each lane, where the 8 elements of its part of A lie, then 4 of B, 4 of D.
void places(std::int32_t* rows, std::int32_t* columns);

}  // namespace ch08
