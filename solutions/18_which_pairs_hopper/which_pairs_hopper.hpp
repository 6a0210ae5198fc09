// Chapter 18, which pairs, on Hopper: chapter 15's masks and changes of scores in chapter 11's kernel. O and the LSE in
// one launch; for Hopper alone (sm_90a).
//
// What changes: a block of chapter 11 goes through the tiles of keys from its last one to the first, and all consumers
// take part in each. With a mask a tile of queries has a first and a last tile of keys, there may be none, and of a
// block's tiles a consumer needs fewer at both ends. It passes over the others in its turn. The registers of a product
// by four warps lie otherwise than chapter 15's, and so does the mask in them. And TMA copies whole boxes, which know
// nothing of packed sequences: a tensor map with a dimension more lets every sequence end where it ends.
// What is left to the threads is what the mask asks for in partial tiles; full ones cost what they cost in chapter 11.
//
// Source: Shah et al. 2024 (FlashAttention-3), sections 3.1 and 3.2; Dong et al. 2024 (FlexAttention).
// Test it: ./workbook test 18
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch18 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// How many tiles of `size` queries a head has, those of each sequence by themselves.
inline std::int64_t tiles_of_head(const workbook::Mask& mask, std::int64_t Nq, int size) {
  if (mask.lengths.empty()) return (Nq + size - 1) / size;
  std::int64_t tiles = 0;
  for (const std::int64_t length : mask.lengths) tiles += (length + size - 1) / size;
  return tiles;
}

/// The sizes of the tiles and the warps of a block that there are kernels for. Four warps are the producer's; each
/// other four, a consumer, have 64 rows of Q. The first is for d = 64, the second for d = 128; the last one, for both,
/// is for short sequences.
inline constexpr Tiles built[] = {{192, 128, 16}, {128, 128, 12}, {128, 64, 12}};
constexpr bool is_built(int d, const Tiles& tiles) {
  return tiles == built[2] ? d == 64 || d == 128 : tiles == built[d == 64 ? 0 : 1] && (d == 64 || d == 128);
}

// In units of log2, m may stay behind a row's maximum by this much: P is at most 2^8.
inline constexpr float slack = 8;

/// O = softmax(change(scale·QKᵀ)) V over the pairs that the call's mask lets count, and the LSE, for every head, in one
/// kernel; head h of Q reads head h / (H / Hkv) of K and V. d is 64 or 128. Rows that see no key give O = 0, and an LSE
/// of -inf or of the sink. Element is half or __nv_bfloat16. There are `most_blocks` blocks at most, and they count in
/// `taken`, an int that is 0, how many tiles of queries have been taken beside each one's first. std::invalid_argument
/// for what is not built.
template <class Element>
void which_pairs(const ForwardCall<Element>& call, const Tiles& tiles, int* taken, int most_blocks);

/// Bytes of shared memory that a block takes; 0: no kernel has these tiles.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch18
