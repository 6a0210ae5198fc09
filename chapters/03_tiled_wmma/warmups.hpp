// Chapter 3's warm-ups: four small kernels, each with one new idea.
//
// 3.1 accesses device memory 16 bytes at a time. 3.2 exchanges data between the threads of a block through shared
// memory, without bank conflicts. 3.3 multiplies on a tensor core. 3.4 combines the three: a tiled matmul. The fused
// kernels are made of these.
//
// Source: CUDA C++ Programming Guide, sections "Device Memory Accesses", "Shared Memory" and "Warp Matrix Functions".
// Test it: ./workbook test 3
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch03 {

/// Exercise 3.1. to (n) = from (n), any n >= 0. Both are aligned to 16 bytes.
void copy(const half* from, half* to, std::int64_t n);

/// Exercise 3.2. to (columns, rows) = the transpose of from (rows, columns); sizes >= 1.
void transpose(const float* from, float* to, std::int64_t rows, std::int64_t columns);

/// Exercise 3.3. C (16, 16) = A (16, 16) · Bᵀ, with B (16, 16): as S = Q Kᵀ, all row-major.
void multiply_transposed(const half* A, const half* B, float* C);

/// Exercise 3.4. C (64, 64) = A (64, depth) · Bᵀ, with B (64, depth), all row-major; depth is a multiple of 64.
void multiply_tiles(const half* A, const half* B, float* C, std::int64_t depth);

}  // namespace ch03
