// Chapter 15, the backward pass: dQ, dK, dV and the gradient of the sinks, for every mask and change of scores.
//
// What changes against chapter 9: a K/V tile of keys asks which Q tiles of queries see any of its keys, and only
// these pass by; P is recomputed from changed scores, and dS takes the derivative of the change; a sink has a gradient
// too. What it costs: a kernel is compiled for each change of scores, as in the forward pass.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 15
#pragma once

#include <cstddef>
#include <cstdint>

#include "which_pairs.hpp"

namespace ch15 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// The keys of a K/V tile, the queries of a Q tile, and the warps of a thread block that there are kernels for,
/// as in chapter 9: the first for d = 64, the next two for d = 128. The last is as small as can be, for tests.
inline constexpr GradientTiles built_backward[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}, {32, 32, 1}};
/// Those that there are kernels with turns for, and kernels for bf16.
inline constexpr GradientTiles built_with_turns[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}};

/// What the kernels need beside the tensors, in device memory. The rows of each sequence are filled up to a multiple of
/// 64.
struct Scratch {
  float2* rows;   ///< padded_rows(): what each query brings, see gradient_sums.hpp
  float* dQ_sum;  ///< padded_rows()·d: the sums of dQ
  int* turns;     ///< turn_count(), or nullptr: the additions come in any order
};
inline std::size_t padded_rows(const workbook::Setting& setting) {
  const workbook::Shape& shape = setting.shape;
  return std::size_t(shape.B * shape.H * blocks_of_head(setting.mask, shape.Nq, 64) * 64);
}
inline std::size_t dQ_sum_size(const workbook::Setting& setting) {
  return padded_rows(setting) * std::size_t(setting.shape.d);
}
/// One for each warp's part of each Q tile, and one before them.
inline std::size_t turn_count(const workbook::Setting& setting) {
  return 1 + padded_rows(setting) / 4;
}

/// The gradients, and dsink if the call has sinks; dK and dV are sums over the heads of Q that share a head. d is 64 or
/// 128. Element is half or __nv_bfloat16. std::invalid_argument for sizes that are not built.
template <class Element>
void which_pairs_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles);

/// Bytes of shared memory that a thread block takes; 0: there is no kernel of these sizes.
template <class Element>
std::size_t backward_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch15
