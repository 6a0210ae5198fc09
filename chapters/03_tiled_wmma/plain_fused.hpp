// Chapter 3, the plain fused kernel: chapter 2's algorithm on a GPU in its simplest form. It computes O and the LSE in
// one launch; S and P never leave the chip.
//
// What changes: each thread has one row of Q, with its m, l and O in registers, so no thread needs another thread's
// results. The threads of a block share only the tiles of K and V. What it costs: both matmuls consist of scalar
// multiply-adds. tiled_wmma.cu computes them on tensor cores, but then no thread has a whole row.
//
// Source: chapter 2, exercise 2.3.
// Test it: ./workbook test 3.5
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch03 {

/// Exercise 3.5. O = softmax(scale·QKᵀ) V and the LSE for every head, for d = 64, without a mask; any Nq, Nk >= 1.
void plain_fused(const workbook::cuda::ForwardCall<half>& call);

}  // namespace ch03
