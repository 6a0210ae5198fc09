// Chapter 20: how the keys of all heads are divided among the thread blocks.
//
// Source: FlashMLA, csrc/smxx/decode/get_decoding_sched_meta.cu: one cut through all requests.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/attention/problem.hpp"
#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch20 {

inline constexpr int unit = 16;  ///< keys: the rows of an MMA operand

/// All heads, each with `units` units of 16 keys, form one sequence of heads·units units. Block b has the units from
/// begin(b) to begin(b + 1) - 1, so all blocks have equally many, or one more.
struct Cut {
  std::int64_t heads, units, blocks;

  // TODO(20.1) The first unit of a block, where begin(blocks) is the number of all units; and the block that has a unit
  // (2 lines).
  // BEGIN 20.1
  __host__ __device__ std::int64_t begin(std::int64_t block) const { WORKBOOK_TODO(20.1); }
  __host__ __device__ std::int64_t block_with(std::int64_t unit) const { WORKBOOK_TODO(20.1); }
  // END 20.1

  /// The blocks that share a head, from first to last.
  __host__ __device__ std::int64_t first_block(std::int64_t head) const { return block_with(head * units); }
  __host__ __device__ std::int64_t last_block(std::int64_t head) const { return block_with(head * units + units - 1); }
  /// The index of a block's partial result for a head: a block shares at most its first head and its last one.
  __host__ __device__ std::int64_t partial(std::int64_t block, std::int64_t head) const {
    return 2 * block + (begin(block) >= head * units ? 0 : 1);
  }
};

/// The thread blocks of 8 warps that a multiprocessor runs at a time: as many as keep 64 KiB of K and V in flight.
constexpr int blocks_per_sm(int d) {
  return 128 / d;
}

/// The cut of a call: `splits` thread blocks per head of K and V, or if it is 0 as many as run at a time, but with at
/// least one unit for each warp on average. A block that has keys of two heads merges and starts loading twice. So the
/// number of blocks is a multiple of the heads if that leaves at most a tenth of the multiprocessors idle. If all heads
/// have equally many keys, the blocks may then also be one per head, in several waves. A head of K and V has group·Nq
/// rows of Q; if these are more than Br, each Br of them are a head of the cut.
inline Cut cut_of(const workbook::Shape& shape, const workbook::cuda::Tiles& tiles, int splits, int multiprocessors,
                  bool equal_heads = true) {
  const std::int64_t row_blocks = (shape.H / shape.Hkv * shape.Nq + tiles.Br - 1) / tiles.Br;
  const std::int64_t heads = shape.B * shape.Hkv * row_blocks, units = (shape.Nk + unit - 1) / unit;
  if (splits > 0) return {heads, units, heads * std::min<std::int64_t>(splits, units)};
  const std::int64_t at_a_time = std::int64_t(multiprocessors) * blocks_per_sm(int(shape.d));
  const std::int64_t blocks = std::clamp<std::int64_t>(heads * units / tiles.warps, 1, at_a_time);
  const std::int64_t waves = equal_heads ? (heads + at_a_time - 1) / at_a_time : 1;
  const std::int64_t whole = waves * at_a_time / heads * heads;  // the same number of blocks for each head
  return {heads, units, blocks == at_a_time && 10 * whole >= 9 * waves * at_a_time ? whole : blocks};
}

}  // namespace ch20
