// Chapter 16, any pair: masks that are no ranges. O and the LSE.
//
// What changes: chapter 15's masks let a query see keys that are neighbours, so that two numbers say which tiles a
// block needs. A predicate on pairs says anything: documents, prefixes, strides. Nothing can be concluded from it, only
// asked. So all pairs are asked once, before the kernel: each block of queries and keys is classed as empty, full or
// partial, and each row of blocks gets a list of those that are not empty. The kernel goes through its list. In full
// blocks it asks nothing, in partial ones each pair. What it costs: a launch for the classes and one for the lists,
// whose work grows with Nq·Nk but not with the heads; and 4 bytes of index a tile.
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

/// The sizes of the tiles and the warps of a block that there are kernels for; a warp has 32 rows of Q: Br = 32·warps.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

// In units of log2, m may stay behind a row's maximum by this much, as in chapter 8.
inline constexpr float slack = 8;

/// What is true of a block's pairs: none counts, every one does, or some do.
enum class BlockClass : unsigned char { empty, full, partial };

/// Lists of partial and of full blocks, a line of `length` places for each row of blocks, or for each column. In
/// FlexAttention they are kv_num_blocks, kv_indices, full_kv_num_blocks and full_kv_indices, for columns q_num_blocks
/// and so on.
struct BlockLists {
  int *partial_count, *partial, *full_count, *full;
};

/// What the kernels need beside the tensors, in device memory: see scratch_blocks().
struct Scratch {
  BlockClass* classes;
  BlockLists lists;
  int* documents;  ///< (Nk): the number of each token's document
};
/// How many blocks a table has at most: no block is smaller than 32 x 32. And the rows or columns of it.
inline std::size_t scratch_blocks(const workbook::Shape& shape) {
  return std::size_t((shape.Nq + 31) / 32) * std::size_t((shape.Nk + 31) / 32);
}
inline std::size_t scratch_lines(const workbook::Shape& shape) {
  return std::size_t(shape.Nq > shape.Nk ? shape.Nq + 31 : shape.Nk + 31) / 32;
}

/// O = softmax(scale·QKᵀ) V over the pairs that the call's mask lets count, and the LSE, for every head. d is 64 or
/// 128. Rows that see no key give O = 0 and an LSE of -inf. Element is half or __nv_bfloat16. std::invalid_argument for
/// sizes that are not built.
template <class Element>
void any_pair(const ForwardCall<Element>& call, const Scratch& scratch, const Tiles& tiles);

/// Bytes of shared memory that a block takes.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch16
