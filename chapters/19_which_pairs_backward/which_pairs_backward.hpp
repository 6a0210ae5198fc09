// Chapter 19: masks on Hopper, backward: chapter 15's masks and score modifications in chapter 13's kernel. Computes
// dQ, dK, dV and the gradient of the sinks, for Hopper (sm_90a).
//
// What changes from chapter 13:
// - A thread block keeps a K/V tile of one packed sequence. It loops over the Q tiles that attend to one of its keys
//   (there may be none), in each head of Q that shares the head of K and V.
// - The mask is evaluated per key: a thread has two keys in a tile, and each has a range of queries.
// - P is recomputed from modified scores, and dS includes the derivative of the score modification. This takes no
//   additional registers, because P·derivative overwrites the dot product.
// - The boxes of TMA end with their sequence, as in chapter 18.
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

/// Bc, Br and the warps of a thread block: the first entry for d = 64, the second for d = 128. Of the three warpgroups,
/// one contains the producer and the writer, and two are the consumers.
inline constexpr GradientTiles built[] = {{128, 128, 12}, {128, 64, 12}};

/// Whether a kernel is built for these sizes.
constexpr bool is_built(std::int64_t d, const GradientTiles& tiles) {
  return (d == 64 && tiles == built[0]) || (d == 128 && tiles == built[1]);
}

/// The number of tiles of `size` rows per head of `rows` rows. Each packed sequence has tiles of its own.
inline std::int64_t tiles_per_head(const workbook::Mask& mask, std::int64_t rows, int size) {
  if (mask.lengths.empty()) return (rows + size - 1) / size;
  std::int64_t tiles = 0;
  for (const std::int64_t length : mask.lengths) tiles += (length + size - 1) / size;
  return tiles;
}

/// Additional device memory of the kernels. The rows of each sequence are padded to a multiple of 128.
struct Scratch {
  float* lse;       ///< padded_rows(): LSE·log2(e) of each query
  float* D;         ///< padded_rows(): rowsum(dO∘O) - dLSE of each query
  float* dQ_sum;    ///< padded_rows()·d: the sums of dQ
  int* semaphores;  ///< semaphore_count(); nullptr: not deterministic
};
inline std::size_t padded_rows(const workbook::Setting& setting) {
  const workbook::Shape& shape = setting.shape;
  return std::size_t(shape.B * shape.H * tiles_per_head(setting.mask, shape.Nq, 128) * 128);
}
inline std::size_t dQ_sum_size(const workbook::Setting& setting) {
  return padded_rows(setting) * std::size_t(setting.shape.d);
}
/// The ticket counter, then one semaphore per 64 padded rows: enough for one per Q tile.
inline std::size_t semaphore_count(const workbook::Setting& setting) {
  return 1 + padded_rows(setting) / 64;
}

/// The gradients, and dsink if the call has sinks. dK and dV are sums over the heads of Q that share a head of K and V.
/// d is 64 or 128. Element is half or __nv_bfloat16. Throws std::invalid_argument for sizes that are not built.
template <class Element>
void which_pairs_backward(const BackwardCall<Element>& call, const Scratch& scratch, const GradientTiles& tiles);

/// Bytes of shared memory of a thread block; 0 if no kernel is built for these sizes.
template <class Element>
std::size_t shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch19
