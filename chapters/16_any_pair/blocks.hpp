// Chapter 16: blocks of queries and keys, each classed once by all of its pairs, and lists of those that are not empty:
// for each row of blocks, and for each column. They are FlexAttention's BlockMask.
//
// Source: Dong et al. 2024 (FlexAttention), section 3.3; torch/nn/attention/flex_attention.py, class BlockMask.
// Test it: ./workbook test 16.3
#pragma once

#include <cstdint>

#include "any_pair.hpp"
#include "pairs.hpp"

namespace ch16 {
namespace {

constexpr unsigned all_lanes = 0xffffffff;

/// The class of the block of Br queries and Bc keys that begins at these, found by a warp: each lane asks every 32nd
/// pair. Queries behind the last one have no say, keys behind the last one leave a block partial.
template <int Br, int Bc, class Predicate>
__device__ BlockClass class_of(const Pairs<Predicate>& pairs, int first_query, int first_key) {
  const int lane = threadIdx.x % 32;
  bool any = false, all = true;
  // TODO(16.3) Each lane goes through its pairs: pair number p is of query p / Bc and key p % Bc of the block. `any`:
  // one of the lane's counts; `all`: every one counts whose query exists. Then both for the whole warp (about 7 lines).
  // BEGIN 16.3
  WORKBOOK_TODO(16.3);
  // END 16.3
  return !any ? BlockClass::empty : all ? BlockClass::full : BlockClass::partial;
}

/// Blocks of one class in a line of `length` blocks, `step` apart: writes the number within the line of each to `list`,
/// in rising order, and returns how many there are. A warp does it, 32 blocks at a time.
__device__ inline int list_blocks(const BlockClass* __restrict__ line, int step, int length, BlockClass wanted,
                                  int* __restrict__ list) {
  const int lane = threadIdx.x % 32;
  int count = 0;
  for (int first = 0; first < length; first += 32) {
    const int block = first + lane;
    // TODO(16.4) A lane whose block exists and is wanted writes `block` behind what the 32 before and the lanes before
    // have written. Which lanes have such a block all of them know by one __ballot_sync (about 4 lines).
    // BEGIN 16.4
    WORKBOOK_TODO(16.4);
    // END 16.4
  }
  return count;
}

/// The classes of `rows` x `columns` blocks, row by row.
struct BlockTable {
  BlockClass* classes;
  int rows, columns;
};
/// A row of blocks, or a column: where its first block is, how far the next one is from it, and how many there are.
struct Line {
  const BlockClass* first;
  int step, length;
};
__device__ inline Line line_of(const BlockTable& table, int number, bool of_columns) {
  // TODO(16.5) Row `number` of the table, or column `number` of it (2 lines).
  // BEGIN 16.5
  WORKBOOK_TODO(16.5);
  // END 16.5
}

/// The blocks that a row (or a column) of blocks goes through: first the partial ones, then the full ones. A warp holds
/// 32 of their numbers, one in each lane.
struct Walk {
  const int *partial, *full;
  int partials, blocks;  // how many are partial, and how many there are
  int held;              // this lane's

  /// The number of block n of the walk, for all lanes. n goes from 0 to blocks - 1, one after the other.
  __device__ int block(int n) {
    // TODO(16.6) Every 32nd time each lane reads the one that it is to hold, as far as there are any: 4 bytes for each
    // block. Then all take it from the lane that holds it (about 5 lines).
    // BEGIN 16.6
    WORKBOOK_TODO(16.6);
    // END 16.6
  }
};
/// The walk of a line, whose lists have room for `length` blocks.
__device__ inline Walk walk_of(const BlockLists& lists, int line, int length) {
  const int partials = lists.partial_count[line], fulls = lists.full_count[line];
  const std::int64_t first = std::int64_t(line) * length;
  return {lists.partial + first, lists.full + first, partials, partials + fulls, 0};
}

/// For the backward pass by turns: whose turn it is when the K/V tiles add to a Q tile's dQ, one after the other
/// from the first to the last. Empty ones never come.
__device__ inline int turn_of(const BlockTable& table, int row, int column) {
  int turn = 0;
  // TODO(16.9) How many come before this one (about 3 lines).
  // BEGIN 16.9
  WORKBOOK_TODO(16.9);
  // END 16.9
  return turn;
}

}  // namespace
}  // namespace ch16
