// Chapter 17, RoPE and dropout: attention with rotary position embedding and with dropout of P. O and the LSE.
//
// What changes from chapter 8: rows of Q and K are rotated by the angles of their positions, in shared memory. A thread
// copies two chunks of a row whose elements form pairs. So it can rotate them as soon as its own copies have arrived,
// and no barrier is added. After the row sum, random elements of P are set to 0. Philox computes the random bits of a
// (query, key) pair from the pair's indices, so the backward pass computes the same bits again.
// What it costs: a table of cosines and sines, of which a thread block reads as many bytes per key as of K and V
// together. Each thread block that reads a row of K rotates it again. And each 16 elements of P take ten rounds of
// Philox.
//
// Source: Su et al. 2021 (RoFormer), section 3.2; Salmon et al. 2011, section 3.3; Dao 2023 (FlashAttention-2).
// Test it: ./workbook test 17
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch17 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The tile sizes and the number of warps that kernels are built for. A warp has 32 rows of Q: Br = 32·warps.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

/// Which elements of P are dropped (dropout.hpp).
struct Dropout {
  uint2 seed;
  int dropped;       ///< p = dropped / 256; 0: no dropout
  float kept_scale;  ///< 1/(1 - p) = 256 / (256 - dropped), the factor of the elements that are kept
};
inline Dropout dropout_of(const workbook::Mask& mask) {
  return {{unsigned(mask.seed), unsigned(mask.seed >> 32)}, mask.dropped, float(mask.kept_scale())};
}

/// The rows of the table of rotations, and its size in float2 (0 without RoPE).
inline std::int64_t table_rows(const workbook::Shape& shape) {
  return shape.Nq > shape.Nk ? shape.Nq : shape.Nk;
}
inline std::size_t table_size(const workbook::Setting& setting) {
  return setting.mask.rope ? std::size_t(table_rows(setting.shape) * setting.shape.d / 2) : 0;
}

/// O = dropout(softmax(scale·RoPE(Q) RoPE(K)ᵀ)) V and the LSE for every head; call.mask selects RoPE and dropout.
/// table: table_size() float2 of device memory, which this call fills. d is 32, 64 or 128. A fully masked row gives O =
/// 0 and an LSE of -inf. Element is half or __nv_bfloat16. Throws std::invalid_argument for sizes that are not built.
template <class Element>
void rope_dropout(const ForwardCall<Element>& call, float2* table, const Tiles& tiles);

/// Bytes of shared memory per thread block.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch17
