// Chapter 15, masks and score modifications: O and the LSE in one launch.
//
// What changes: chapter 8's kernel has two masks. Models need more: sliding windows; scores that fall with the distance
// (ALiBi) or are bounded (softcap); an attention sink, whose weight goes to no key; packed sequences. One kernel serves
// them all. A mask gives the range of keys that a query attends to, so each K/V tile is empty, full or partial for a
// warp. Empty tiles are skipped, full tiles cost as much as without a mask, and only partial tiles test each pair. A
// score modification is a type with a small function, which the compiler inlines into the loop. What it costs: the
// bounds of the loop depend on the mask, and each score modification is a kernel of its own.
//
// Source: Dong et al. 2024 (FlexAttention); Ye et al. 2025 (FlashInfer), section 3.2.
// Test it: ./workbook test 15
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch15 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The number of tiles of `size` rows in a head with `rows` rows, Nq or Nk. Each packed sequence has tiles of its own.
inline std::int64_t tiles_per_head(const workbook::Mask& mask, std::int64_t rows, int size) {
  if (mask.lengths.empty()) return (rows + size - 1) / size;
  std::int64_t tiles = 0;
  for (const std::int64_t length : mask.lengths) tiles += (length + size - 1) / size;
  return tiles;
}

/// The tile sizes and the number of warps that kernels are built for. A warp has 32 rows of Q: Br = 32·warps.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

/// O = softmax(score_mod(scale·QKᵀ)) V over the unmasked pairs, and the LSE, for every head, in one kernel. Head h of Q
/// reads head h / (H / Hkv) of K and V. No extra memory. d is 64 or 128. A fully masked row gives O = 0, and the sink
/// as its LSE, or -inf without a sink. Element is half or __nv_bfloat16. Throws std::invalid_argument for sizes that
/// are not built.
template <class Element>
void which_pairs(const ForwardCall<Element>& call, const Tiles& tiles);

/// Bytes of shared memory per thread block.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch15
