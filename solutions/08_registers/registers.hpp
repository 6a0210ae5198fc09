// Chapter 8, registers: a forward pass whose S and P stay in registers. O and the LSE in one launch, causal or not.
//
// What changes: WMMA does not specify which lane holds which element. So in chapters 4 and 5 S went through shared
// memory to the lane that processes its row, and P went back the same way. This kernel uses the instructions below
// WMMA. mma.m16n8k16 places a row of S in four adjacent lanes, a quad. A row's maximum takes two shuffles within the
// quad, which also holds m and l. P does not move at all: a lane's elements of two adjacent parts of S are its elements
// of the left operand of O += P V. ldmatrix loads Q, K and V from swizzled rows. They need no padding, so two stages of
// K and V fit in shared memory for d = 128 too. The same source is compiled for fp16 and bf16.
// What it costs: the code contains the operand layout of one instruction, and runs only on GPUs that have it (Ampere
// and later).
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

/// The tile sizes and warps per block for which kernels are built. A warp has 32 rows of Q, so Br = 32·warps. For
/// d = 128 they take 96 and 40 KB of shared memory.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

// In units of log2, m may be below the row maximum by this much, and O is then not rescaled: P is at most 2^8.
inline constexpr float slack = 8;

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. Fully
/// masked rows have O = 0 and an LSE of -inf. Element is half or __nv_bfloat16. Throws std::invalid_argument for sizes
/// that are not built.
template <class Element>
void registers(const ForwardCall<Element>& call, const Tiles& tiles);

/// Bytes of shared memory per block.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

/// D (16, 8) = A (16, 16) · B (16, 8), all row-major, by one warp: the warm-up of exercise 8.1.
void multiply(const half* A, const half* B, float* D);
/// rows (32, 16) and columns (32, 16): the positions of each lane's 8 elements of A, 4 of B and 4 of D.
void fragment_layout(std::int32_t* rows, std::int32_t* columns);

}  // namespace ch08
