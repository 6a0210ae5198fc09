// Chapter 17, positions and chance: attention that knows where rows stand, and that drops some of P. O and the LSE.
//
// What changes against chapter 8: rows of Q and K are rotated to their positions where they lie in shared memory. A
// thread copies two chunks of a row that hold each other's partners, so that it may rotate them as soon as its own
// copies are there, and no barrier is added. And P, after its sum has been taken, loses elements by chance: Philox
// gives a number to each pair of a query and a key, the same in the backward pass, which draws it again.
// What it costs: a table of cosines and sines, of which a block reads as many bytes as of K and V together; a row of K
// is rotated by each block that reads it; and ten rounds of Philox for each 16 elements of P.
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

/// The sizes of the tiles and the warps of a block that there are kernels for; a warp has 32 rows of Q: Br = 32·warps.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

// In units of log2, m may stay behind a row's maximum by this much, as in chapter 8.
inline constexpr float slack = 8;

/// Which elements of P are dropped (dropout.hpp).
struct Dropout {
  uint2 seed;
  int dropped;       ///< of 256 elements about so many; 0: none
  float kept_scale;  ///< 1/(1 - p) = 256 / (256 - dropped): what is kept stands for all
};
inline Dropout dropout_of(const workbook::Mask& mask) {
  return {{unsigned(mask.seed), unsigned(mask.seed >> 32)}, mask.dropped, float(mask.kept_scale())};
}

/// The rows of the table of rotations, and its float2 for a call that rotates.
inline std::int64_t table_rows(const workbook::Shape& shape) {
  return shape.Nq > shape.Nk ? shape.Nq : shape.Nk;
}
inline std::size_t table_size(const workbook::Setting& setting) {
  return setting.mask.rope ? std::size_t(table_rows(setting.shape) * setting.shape.d / 2) : 0;
}

/// O = dropped(softmax(scale·rotated(Q) rotated(K)ᵀ)) V and the LSE, for every head; the call's mask says what of that
/// is asked for. table: table_size() float2 of device memory, to be filled. d is 32, 64 or 128. Rows that see no key
/// give O = 0 and an LSE of -inf. Element is half or __nv_bfloat16. std::invalid_argument for sizes that are not built.
template <class Element>
void rope_dropout(const ForwardCall<Element>& call, float2* table, const Tiles& tiles);

/// Bytes of shared memory that a block takes.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch17
