// Chapter 16, the backward pass: dQ, dK and dV, for every mask.
//
// What changes against chapter 9: the transposed lists say which Q tiles of queries see any of the keys of a column
// block, and only these pass by; P and dS are asked for each pair in partial blocks. By turns, a table says when a
// K/V tile's turn comes in a Q tile.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2; Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 16
#pragma once

#include <cstddef>
#include <cstdint>

#include "any_pair.hpp"

namespace ch16 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// The keys of a K/V tile, the queries of a Q tile, and the warps of a thread block that there are kernels for,
/// as in chapter 9: the first for d = 64, the next two for d = 128. The last is as small as can be, for tests.
inline constexpr GradientTiles built_backward[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}, {32, 32, 1}};
/// Those that there are kernels with turns for, and kernels for bf16.
inline constexpr GradientTiles built_with_turns[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}};

/// What the kernels need beside the tensors and lists, in device memory. Rows are filled up to a multiple of 64.
struct Sums {
  float2* rows;       ///< padded_rows(): what each query brings, see gradient_sums.hpp
  float* dQ_sum;      ///< padded_rows()·d: the sums of dQ
  int* turns;         ///< turn_count(), or nullptr: the additions come in any order
  int* turn_numbers;  ///< scratch_blocks(): of each block, see turn_of(); or nullptr
};
inline std::size_t padded_rows(const workbook::Shape& shape) {
  return std::size_t(shape.B * shape.H * ((shape.Nq + 63) / 64 * 64));
}
inline std::size_t dQ_sum_size(const workbook::Shape& shape) {
  return padded_rows(shape) * std::size_t(shape.d);
}
/// One for each warp's part of each Q tile, and one before them.
inline std::size_t turn_count(const workbook::Shape& shape) {
  return 1 + padded_rows(shape) / 4;
}

/// The gradients. d is 64 or 128. Element is half or __nv_bfloat16.
template <class Element>
void any_pair_backward(const BackwardCall<Element>& call, const Scratch& scratch, const Sums& sums,
                       const GradientTiles& tiles);

/// Bytes of shared memory that a thread block takes; 0: there is no kernel of these sizes.
template <class Element>
std::size_t backward_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch16
