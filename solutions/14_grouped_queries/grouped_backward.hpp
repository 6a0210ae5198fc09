// Chapter 14, the backward pass of grouped queries: dQ, dK and dV where heads of Q share a head of K and V.
//
// What changes against chapter 9: dK and dV of a head of K and V are sums over the G heads of Q that read it. A kernel
// that gives every head of Q blocks of its own has G parts of them, which have to be added up somewhere. Here a block
// has a K/V tile of one head of K and V, and the Q tiles of all G heads of Q pass by, one head after the other.
// The sums stay in registers until the last one has passed, and are written once. What it costs: there are G times
// fewer blocks, each with G times the work.
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

/// The keys of a K/V tile, the queries of a Q tile, and the warps of a thread block that there are kernels for,
/// as in chapter 9: the first for d = 64, the next two for d = 128. The last is as small as can be, for tests.
inline constexpr GradientTiles built_backward[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}, {32, 32, 1}};
/// Those that there are kernels with semaphores for, and kernels for bf16.
inline constexpr GradientTiles built_deterministic[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}};

/// What the kernels need beside the tensors, in device memory, by heads of Q. Rows are filled up to a multiple of 64.
struct Scratch {
  float2* rows;     ///< padded_rows(): what each query brings, see gradient_sums.hpp
  float* dQ_sum;    ///< padded_rows()·d: the sums of dQ
  int* semaphores;  ///< semaphore_count(), or nullptr: the additions come in any order
};
inline std::size_t padded_rows(const workbook::Shape& shape) {
  return std::size_t(shape.B * shape.H * ((shape.Nq + 63) / 64) * 64);
}
inline std::size_t dQ_sum_size(const workbook::Shape& shape) {
  return padded_rows(shape) * std::size_t(shape.d);
}
/// One for each warp's part of each Q tile, and one before them.
inline std::size_t semaphore_count(const workbook::Shape& shape) {
  return 1 + padded_rows(shape) / 4;
}

/// dQ for every head of Q, dK and dV for every head of K and V; head h of Q reads head h / (H / Hkv). d is 64 or 128.
/// Element is half or __nv_bfloat16. std::invalid_argument for sizes that are not built.
template <class Element>
void grouped_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles);

/// Bytes of shared memory that a thread block takes; 0: there is no kernel of these sizes.
template <class Element>
std::size_t backward_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch14
