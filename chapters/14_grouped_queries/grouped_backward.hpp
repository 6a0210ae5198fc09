// Chapter 14, the backward pass of grouped-query attention: dQ, dK and dV where heads of Q share a head of K and V.
//
// What changes from chapter 9: dK and dV of a head of K and V are sums over the G heads of Q that read it. If every
// head of Q had its own thread blocks, there would be G partial sums to reduce. Here a thread block keeps a K/V tile
// and loops over the Q tiles of all G heads, head by head. dK and dV stay in registers and are written once. What it
// costs: there are G times fewer thread blocks, each with G times the work.
//
// Source: Ainslie et al. 2023 (GQA), section 2.2; Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2.
// Test it: ./workbook test 14
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch14 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// Bc, Br and the number of warps that kernels are built for, as in chapter 9: the first for d = 64, the second and the
/// third for d = 128, and the smallest possible one for tests.
inline constexpr GradientTiles built_backward[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}, {32, 32, 1}};
/// Those that are also built for the deterministic mode and for bf16.
inline constexpr GradientTiles built_deterministic[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}};

/// Scratch in device memory, for every head of Q. The rows of each head are padded to a multiple of 64.
struct Scratch {
  float2* row_stats;  ///< padded_rows(): LSE and D, see gradient_sums.hpp
  float* dQ_sum;      ///< padded_rows()·d: the sums of dQ
  int* semaphores;    ///< semaphore_count(), or nullptr: additions in any order
};
inline std::size_t padded_rows(const workbook::Shape& shape) {
  return std::size_t(shape.B * shape.H * ((shape.Nq + 63) / 64) * 64);
}
inline std::size_t dQ_sum_size(const workbook::Shape& shape) {
  return padded_rows(shape) * std::size_t(shape.d);
}
/// The ticket counter, and one semaphore per warp of each Q tile.
inline std::size_t semaphore_count(const workbook::Shape& shape) {
  return 1 + padded_rows(shape) / 4;
}

/// dQ for every head of Q, dK and dV for every head of K and V; head h of Q reads head h / (H / Hkv). d is 64 or 128.
/// Element is half or __nv_bfloat16. Throws std::invalid_argument for sizes that are not built.
template <class Element>
void grouped_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles);

/// Bytes of shared memory per thread block; 0 if no kernel is built for these sizes.
template <class Element>
std::size_t backward_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch14
