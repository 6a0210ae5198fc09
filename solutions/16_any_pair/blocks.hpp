// Chapter 16: the block-sparse mask (FlexAttention's BlockMask). A block is what one Q tile and one K/V tile form: Br x
// Bc pairs. Each block is classified once, by all of its pairs. The blocks that are not empty are listed, for each row
// and for each column of blocks.
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

/// The class of the block of Br queries and Bc keys that starts at first_query and first_key. One warp calls it; a lane
/// tests every 32nd pair. Queries past the end are ignored; keys past the end are masked, so their block is not full.
template <int Br, int Bc, class MaskMod>
__device__ BlockClass classify_block(const PairMask<MaskMod>& mask, int first_query, int first_key) {
  const int lane = threadIdx.x % 32;
  bool any = false, all = true;
  // TODO(16.3) Test pairs lane, lane + 32, ... of the block's Br·Bc pairs. Pair p has query p / Bc and key p % Bc of
  // the block. `any`: at least one pair is unmasked. `all`: every pair whose query exists is unmasked. Compute both
  // per lane, then for the whole warp (about 7 lines).
  // BEGIN 16.3
  for (int p = lane; p < Br * Bc; p += 32) {
    const int query = first_query + p / Bc;
    const bool unmasked = mask(query, first_key + p % Bc);
    any = any || unmasked;
    all = all && (unmasked || query >= mask.Nq);
  }
  any = __any_sync(all_lanes, any), all = __all_sync(all_lanes, all);
  // END 16.3
  return !any ? BlockClass::empty : all ? BlockClass::full : BlockClass::partial;
}

/// Writes the indices of the blocks of class `wanted` in a line to `list`, in increasing order, and returns their
/// number. The line has `length` blocks, which are `step` apart in memory. One warp calls it, and reads 32 blocks at a
/// time.
__device__ inline int list_blocks(const BlockClass* __restrict__ line, int step, int length, BlockClass wanted,
                                  int* __restrict__ list) {
  const int lane = threadIdx.x % 32;
  int count = 0;
  for (int first = 0; first < length; first += 32) {
    const int block = first + lane;
    // TODO(16.4) If this lane's block exists and has the class `wanted`, write `block` to the list, after the entries
    // of earlier iterations and of lower lanes. __ballot_sync gives all lanes one bit per lane, set if that lane
    // writes. Then update `count` (about 4 lines).
    // BEGIN 16.4
    const bool is_wanted = block < length && line[block * step] == wanted;
    const unsigned ballot = __ballot_sync(all_lanes, is_wanted);
    if (is_wanted) list[count + __popc(ballot & ((1U << lane) - 1))] = block;
    count += __popc(ballot);
    // END 16.4
  }
  return count;
}

/// The classes of rows x columns blocks, in row-major order. A row has the blocks of a Q tile, a column those of a K/V
/// tile.
struct BlockTable {
  BlockClass* classes;
  int rows, columns;
};
/// A line of the table, which is a row or a column: its first block, the distance between its blocks in memory, and
/// their number.
struct Line {
  const BlockClass* first;
  int step, length;
};
__device__ inline Line line_of(const BlockTable& table, int index, bool transposed) {
  // TODO(16.5) Row `index` of the table; if `transposed`, column `index` (2 lines).
  // BEGIN 16.5
  if (transposed) return {table.classes + index, table.columns, table.rows};
  return {table.classes + index * table.columns, 1, table.columns};
  // END 16.5
}

/// The blocks of a line that are not empty, for a loop over n from 0 to count - 1: the partial blocks come first, then
/// the full ones. A warp holds 32 of their indices in registers, one per lane.
struct BlockIterator {
  const int *partial, *full;  // the line's two lists
  int partial_count, count;   // the number of partial blocks, and of both classes
  int held;                   // the index that this lane holds

  /// The index of block n, in all lanes. All lanes must call it, with n = 0, 1, 2, ... in this order.
  __device__ int block(int n) {
    // TODO(16.6) If n is a multiple of 32, lane k loads the index of block n + k into `held`, or sets it to 0 past the
    // last block. Then return the index of block n from the lane that holds it (about 5 lines).
    // BEGIN 16.6
    if (n % 32 == 0) {
      const int lane_n = n + int(threadIdx.x) % 32;
      held = lane_n < partial_count ? partial[lane_n] : lane_n < count ? full[lane_n - partial_count] : 0;
    }
    return __shfl_sync(all_lanes, held, n % 32);
    // END 16.6
  }
};
/// The iterator of line `line`. Each line's lists have room for `length` indices.
__device__ inline BlockIterator block_iterator(const BlockLists& lists, int line, int length) {
  const int partial_count = lists.partial_count[line], full_count = lists.full_count[line];
  const std::int64_t first = std::int64_t(line) * length;
  return {lists.partial + first, lists.full + first, partial_count, partial_count + full_count, 0};
}

/// The rank of K/V tile `column` among the K/V tiles that add to dQ of Q tile `row` (deterministic mode). They add in
/// increasing order; empty blocks never add.
__device__ inline int dQ_rank(const BlockTable& table, int row, int column) {
  int rank = 0;
  // TODO(16.9) Add the number of earlier K/V tiles that add to this Q tile (about 3 lines).
  // BEGIN 16.9
  const BlockClass* const line = table.classes + row * table.columns;
  for (int earlier = 0; earlier < column; ++earlier) rank += line[earlier] != BlockClass::empty;
  // END 16.9
  return rank;
}

}  // namespace
}  // namespace ch16
