// Chapter 19, which pairs, the backward pass on Hopper: chapter 15's masks and changes of scores in chapter 13's
// kernel. dQ, dK, dV and the gradient of the sinks; for Hopper alone (sm_90a).
//
// What changes: a block of chapter 13 has a K/V tile of keys and meets Q tiles up to the last one. With a mask
// it meets those of which some query sees one of its keys, perhaps none; where heads of Q share K and V it meets those
// of one head after the other; and its keys are of one packed sequence, in which TMA's boxes end, as in chapter 18.
// P is recomputed from changed scores, and dS takes the derivative of the change, without a register more: P·derivative
// takes the place of the score. A mask is seen from the side of the keys: a thread has two of them in a tile.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1; Dong et al. 2024 (FlexAttention).
// Test it: ./workbook test 19
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch19 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// The keys of a K/V tile, the queries of a Q tile, and the warps of a thread block: the first for d = 64, the
/// second for d = 128. Four warps are the producer's and the writer's, four are a consumer.
inline constexpr GradientTiles built[] = {{128, 128, 12}, {128, 64, 12}};

/// Whether there is a kernel for them.
constexpr bool is_built(std::int64_t d, const GradientTiles& tiles) {
  return (d == 64 && tiles == built[0]) || (d == 128 && tiles == built[1]);
}

/// How many blocks of `size` rows a head has, those of each sequence by themselves; there are `rows` rows, Nq or Nk.
inline std::int64_t blocks_of_head(const workbook::Mask& mask, std::int64_t rows, int size) {
  if (mask.lengths.empty()) return (rows + size - 1) / size;
  std::int64_t blocks = 0;
  for (const std::int64_t length : mask.lengths) blocks += (length + size - 1) / size;
  return blocks;
}

/// What the kernels need beside the tensors, in device memory. The rows of each sequence are filled up to a multiple of
/// 128.
struct Scratch {
  float* lse;     ///< padded_rows(): LSE·log2(e) of each query
  float* D;       ///< padded_rows(): rowsum(dO∘O) of each query
  float* dQ_sum;  ///< padded_rows()·d: the sums of dQ
  int* turns;     ///< turn_count(), or nullptr: the additions come in any order
};
inline std::size_t padded_rows(const workbook::Setting& setting) {
  const workbook::Shape& shape = setting.shape;
  return std::size_t(shape.B * shape.H * blocks_of_head(setting.mask, shape.Nq, 128) * 128);
}
inline std::size_t dQ_sum_size(const workbook::Setting& setting) {
  return padded_rows(setting) * std::size_t(setting.shape.d);
}
/// One for each 64 padded rows, and one before them.
inline std::size_t turn_count(const workbook::Setting& setting) {
  return 1 + padded_rows(setting) / 64;
}

/// The gradients, and dsink if the call has sinks; dK and dV are sums over the heads of Q that share a head. d is 64 or
/// 128. Element is half or __nv_bfloat16. std::invalid_argument for what is not built.
template <class Element>
void which_pairs_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles);

/// Bytes of shared memory that a thread block takes; 0: there is no kernel of these sizes.
template <class Element>
std::size_t shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch19
