// Chapter 1 on a GPU, given: attention in three kernels, with S and P written to device memory in full.
//
// This is the baseline for traffic and time: the fused kernels from chapter 3 on are compared with it. Both matmuls run
// on tensor cores, every kernel reads and writes 16 bytes per thread, and S and P are each written once and read once.
// S is stored in fp32: at a score of 100 adjacent fp16 numbers are 1/16 apart, and rounding to the nearer one would
// change a weight by up to 3 %. P is stored in fp16, the input type of the second matmul.
//
// Source: Dao et al. 2022, section 2.2, Algorithm 0.
// Test it: ./workbook test 1
#pragma once

#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch01 {

/// The row length of S and P in elements: Nk, rounded up so that every row starts at a multiple of 32 bytes.
inline std::int64_t score_stride(std::int64_t Nk) {
  return (Nk + 15) / 16 * 16;
}

/// The tile sizes of both matmuls, and the warps per block.
inline constexpr workbook::cuda::Tiles built[] = {{64, 64, 4}};

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in three kernels. d is 32, 64 or 128. S and P are scratch
/// memory, each B·H·Nq rows of score_stride(Nk) elements.
void naive_attention(const workbook::cuda::ForwardCall<half>& call, float* S, half* P);

}  // namespace ch01
