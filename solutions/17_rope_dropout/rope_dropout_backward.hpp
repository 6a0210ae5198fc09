// Chapter 17, the backward pass: dQ, dK and dV of attention with RoPE and dropout.
//
// What changes from chapter 9: rows of K and Q are rotated in shared memory, as in the forward pass. dK and dQ are
// rotated back; a lane holds both elements of a pair. The forward pass stores no dropout mask, which would take Nq·Nk
// bits per head. The backward pass generates the same bits again.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; Su et al. 2021 (RoFormer), section 3.2.
// Test it: ./workbook test 17
#pragma once

#include <cstddef>
#include <cstdint>

#include "rope_dropout.hpp"

namespace ch17 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// Bc, Br and the number of warps that kernels are built for, as in chapter 9: the first for d = 32 and 64, the second
/// and the third for d = 128, and the smallest possible one for tests.
inline constexpr GradientTiles built_backward[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}, {32, 32, 1}};
/// Those that are also built for the deterministic mode and for bf16.
inline constexpr GradientTiles built_deterministic[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}};

/// Scratch in device memory. The rows of each head are padded to a multiple of 64.
struct Scratch {
  float2* table;      ///< table_size(): rotations
  float2* row_stats;  ///< padded_rows(): LSE and D, see chapter 15's gradient_sums.hpp
  float* dQ_sum;      ///< padded_rows()·d: the sums of dQ
  int* semaphores;    ///< semaphore_count(), or nullptr: additions in any order
};
inline std::size_t padded_rows(const workbook::Shape& shape) {
  return std::size_t(shape.B * shape.H * ((shape.Nq + 63) / 64 * 64));
}
inline std::size_t dQ_sum_size(const workbook::Shape& shape) {
  return padded_rows(shape) * std::size_t(shape.d);
}
/// The ticket counter, and one semaphore per warp of each Q tile.
inline std::size_t semaphore_count(const workbook::Shape& shape) {
  return 1 + padded_rows(shape) / 4;
}

/// dQ, dK and dV for every head. d is 32, 64 or 128. Element is half or __nv_bfloat16. Throws std::invalid_argument for
/// sizes that are not built.
template <class Element>
void rope_dropout_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles);

/// Bytes of shared memory per thread block; 0: there is no kernel of these sizes.
template <class Element>
std::size_t backward_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch17
