// Chapter 1 on a GPU, given: attention in three kernels, with S and P written to device memory in full.
//
// This is the baseline for traffic and time: what the fused kernels from chapter 3 on are compared with. Both products
// run on tensor cores, every kernel reads and writes 16 bytes a thread, and S and P are each written once and read
// once. S is kept in fp32: at a score of 100 neighbouring fp16 numbers are 1/16 apart, and rounding to the nearer one
// would change a weight by up to 3 %. P is kept in fp16, since that is what the second product takes.
//
// Source: Dao et al. 2022, section 2.2, Algorithm 0.
// Test it: ./workbook test 1
#pragma once

#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch01 {

/// Elements from one row of S, or of P, to the next: Nk, rounded up so that every row starts at a multiple of 32 bytes.
inline std::int64_t score_stride(std::int64_t Nk) {
  return (Nk + 15) / 16 * 16;
}

/// The tiles of both products, and the warps of a block.
inline constexpr workbook::cuda::Tiles built[] = {{64, 64, 4}};

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in three kernels. d is 32, 64 or 128. S and P are scratch, each
/// B·H·Nq rows of score_stride(Nk).
void naive_attention(const workbook::cuda::ForwardCall<half>& call, float* S, half* P);

}  // namespace ch01
