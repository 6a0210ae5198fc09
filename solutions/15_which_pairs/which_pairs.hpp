// Chapter 15, which pairs count: masks and changes of scores. O and the LSE in one launch.
//
// What changes: chapter 8's kernel knows two masks. Models have more: windows, of which each query sees only the keys
// near it; scores that fall with the distance (ALiBi) or cannot grow (softcap); a sink, to which a row may give weight
// that no key gets; sequences packed one after the other. They are not five kernels. A mask says for each query which
// keys it sees, as a range, and so every tile of keys is empty, full or partial for a warp: empty ones cost nothing,
// full ones as much as without a mask, and only partial ones ask for each pair. A change of scores is a type with one
// small function, which the compiler puts into the loop. What it costs: the loop begins and ends where the mask says,
// and a kernel is compiled for each change.
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

/// How many blocks a head has, one for each `size` rows of each sequence; there are `rows` rows, Nq or Nk.
inline std::int64_t blocks_of_head(const workbook::Mask& mask, std::int64_t rows, int size) {
  if (mask.lengths.empty()) return (rows + size - 1) / size;
  std::int64_t blocks = 0;
  for (const std::int64_t length : mask.lengths) blocks += (length + size - 1) / size;
  return blocks;
}

/// The sizes of the tiles and the warps of a block that there are kernels for; a warp has 32 rows of Q: Br = 32·warps.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

// In units of log2, m may stay behind a row's maximum by this much, as in chapter 8.
inline constexpr float slack = 8;

/// O = softmax(change(scale·QKᵀ)) V over the pairs that the call's mask lets count, and the LSE, for every head, in one
/// kernel; head h of Q reads head h / (H / Hkv) of K and V. No extra memory. d is 64 or 128. Rows that see no key give
/// O = 0, and an LSE of -inf or of the sink. Element is half or __nv_bfloat16. std::invalid_argument for sizes that are
/// not built.
template <class Element>
void which_pairs(const ForwardCall<Element>& call, const Tiles& tiles);

/// Bytes of shared memory that a block takes.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch15
