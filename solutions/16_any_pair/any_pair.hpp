// Chapter 16, block-sparse masks: O and the LSE under any mask predicate.
//
// What changes: chapter 15's masks give each query one range of keys, so two numbers determine which tiles a thread
// block needs. A predicate can express any mask: documents, prefixes, strides. It can only be evaluated. So a first
// kernel evaluates it once for every pair, and classifies each block of a Q tile and a K/V tile as empty, full or
// partial. A second kernel lists the blocks of each row that are not empty. The attention kernel loops over these
// lists. It tests no pair in full blocks, and every pair in partial ones. What it costs: these two launches, whose work
// grows with Nq·Nk but not with the number of heads; and 4 bytes of index per block and warp.
//
// Source: Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 16
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch16 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The tile sizes and the number of warps that kernels are built for. A warp has 32 rows of Q: Br = 32·warps.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

/// The pairs of a block: all masked, all unmasked, or some of each.
enum class BlockClass : unsigned char { empty, full, partial };

/// The lists of partial and of full blocks: for each row of blocks, or for each column, a count and `length` slots. In
/// FlexAttention they are kv_num_blocks, kv_indices, full_kv_num_blocks and full_kv_indices; for columns q_num_blocks
/// and so on.
struct BlockLists {
  int *partial_count, *partial, *full_count, *full;
};

/// Scratch in device memory, for the sizes of scratch_blocks() and scratch_lines().
struct Scratch {
  BlockClass* classes;
  BlockLists lists;
  int* documents;  ///< (Nk): the index of each token's document
};
/// The largest number of blocks, and of rows or columns of blocks. No block is smaller than 32 x 32.
inline std::size_t scratch_blocks(const workbook::Shape& shape) {
  return std::size_t((shape.Nq + 31) / 32) * std::size_t((shape.Nk + 31) / 32);
}
inline std::size_t scratch_lines(const workbook::Shape& shape) {
  return std::size_t(shape.Nq > shape.Nk ? shape.Nq + 31 : shape.Nk + 31) / 32;
}

/// O = softmax(scale·QKᵀ) V over the unmasked pairs, and the LSE, for every head. Head h of Q reads head h / (H / Hkv)
/// of K and V. d is 64 or 128. A fully masked row gives O = 0 and an LSE of -inf. Element is half or __nv_bfloat16.
/// Throws std::invalid_argument for sizes that are not built.
template <class Element>
void any_pair(const ForwardCall<Element>& call, const Scratch& scratch, const Tiles& tiles);

/// Bytes of shared memory per thread block.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch16
