// Chapter 15, the backward pass: dQ, dK, dV and the gradient of the sinks, for every mask and score modification.
//
// What changes against chapter 9: a K/V tile loops over only the Q tiles that attend to one of its keys; P is
// recomputed from modified scores, and dS includes the derivative of the score modification; a sink has a gradient too.
// What it costs: each score modification is a kernel of its own, as in the forward pass.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 15
#pragma once

#include <cstddef>
#include <cstdint>

#include "which_pairs.hpp"

namespace ch15 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// Bc, Br and the number of warps that kernels are built for, as in chapter 9: the first for d = 64, the second and the
/// third for d = 128, and the smallest possible one for tests.
inline constexpr GradientTiles built_backward[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}, {32, 32, 1}};
/// Those that are also built for the deterministic mode and for bf16.
inline constexpr GradientTiles built_deterministic[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}};

/// Scratch in device memory. The rows of each sequence are padded to a multiple of 64.
struct Scratch {
  float2* row_stats;  ///< padded_rows(): LSE and D, see gradient_sums.hpp
  float* dQ_sum;      ///< padded_rows()·d: the sums of dQ
  int* semaphores;    ///< semaphore_count(), or nullptr: additions in any order
};
inline std::size_t padded_rows(const workbook::Setting& setting) {
  const workbook::Shape& shape = setting.shape;
  return std::size_t(shape.B * shape.H * tiles_per_head(setting.mask, shape.Nq, 64) * 64);
}
inline std::size_t dQ_sum_size(const workbook::Setting& setting) {
  return padded_rows(setting) * std::size_t(setting.shape.d);
}
/// The ticket counter, and one semaphore per warp of each Q tile.
inline std::size_t semaphore_count(const workbook::Setting& setting) {
  return 1 + padded_rows(setting) / 4;
}

/// The gradients, and dsink if the call has sinks. dK and dV are sums over the heads of Q that share a head of K and V.
/// d is 64 or 128. Element is half or __nv_bfloat16. Throws std::invalid_argument for sizes that are not built.
template <class Element>
void which_pairs_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles);

/// Bytes of shared memory per thread block; 0 if no kernel is built for these sizes.
template <class Element>
std::size_t backward_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch15
