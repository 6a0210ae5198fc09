// Chapter 16, the backward pass: dQ, dK and dV under any mask predicate.
//
// What changes against chapter 9: a K/V tile loops over the Q tiles of its transposed lists, which are those with an
// unmasked pair; in partial blocks P and dS are masked pair by pair. In deterministic mode, a table holds the rank of
// each K/V tile in each Q tile. What it costs: the launches that classify and list the blocks, as in the forward pass.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 16
#pragma once

#include <cstddef>
#include <cstdint>

#include "any_pair.hpp"

namespace ch16 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// Bc, Br and the number of warps that kernels are built for, as in chapter 9: the first for d = 64, the second and the
/// third for d = 128, and the smallest possible one for tests.
inline constexpr GradientTiles built_backward[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}, {32, 32, 1}};
/// Those that are also built for the deterministic mode and for bf16.
inline constexpr GradientTiles built_deterministic[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}};

/// More scratch in device memory. The rows of each head are padded to a multiple of 64.
struct Sums {
  float2* row_stats;  ///< padded_rows(): LSE and D, see chapter 15's gradient_sums.hpp
  float* dQ_sum;      ///< padded_rows()·d: the sums of dQ
  int* semaphores;    ///< semaphore_count(), or nullptr: additions in any order
  int* ranks;         ///< scratch_blocks(): dQ_rank() of each block; or nullptr
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

/// The gradients. dK and dV are sums over the heads of Q that share a head of K and V. d is 64 or 128. Element is half
/// or __nv_bfloat16. Throws std::invalid_argument for sizes that are not built.
template <class Element>
void any_pair_backward(const BackwardCall<Element>& call, const Scratch& scratch, const Sums& sums,
                       const GradientTiles& tiles);

/// Bytes of shared memory per thread block; 0 if no kernel is built for these sizes.
template <class Element>
std::size_t backward_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch16
