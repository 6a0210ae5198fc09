// Chapter 21: how the keys of requests with different lengths are divided among the thread blocks. The lengths are in
// device memory, and so is everything that depends on them.
//
// Source: FlashMLA, csrc/smxx/decode/get_decoding_sched_meta.cu: one cut through all requests.
#pragma once

#include <cstdint>

#include "20_split_kv/merge.hpp"
#include "paged_cache.hpp"

namespace ch21 {
namespace {

using ch20::all_lanes, ch20::unit;

/// The units of a request's heads: at least one, so that a thread block writes O and the LSE of a request without keys.
__device__ __forceinline__ int units_of(int keys) {
  return max(1, (keys + unit - 1) / unit);
}

/// One warp: first_unit[b] becomes the number of units of the requests before b, for b = 0 to B.
__global__ void sum_units(Cache cache, std::int64_t B, std::int64_t* __restrict__ first_unit) {
  const int lane = threadIdx.x;
  if (lane == 0) first_unit[0] = 0;
  std::int64_t before = 0;  // units of the requests before b
  for (std::int64_t b = 0; b < B; b += 32) {
    std::int64_t sum = b + lane < B ? units_of(cache.length(b + lane)) : 0;
    // TODO(21.1) Lane l has the units of request b + l in `sum`. Make it the sum over lanes 0 to l, in five steps.
    // Store first_unit of the next request, and add the units of these 32 requests to `before` (about 6 lines).
    // BEGIN 21.1
    WORKBOOK_TODO(21.1);
    // END 21.1
  }
}

}  // namespace

/// A part of the sequence of all units that is cut equally: chapter 20's Cut, from first_unit and first_block on.
struct Section {
  std::int64_t first_unit, first_block;
  ch20::Cut cut;
};

/// The units of all heads, request by request, form one sequence. Without `splits`, its units are divided equally among
/// all blocks. With `splits`, each head's are divided among that number of blocks, whatever the other requests are.
/// Where there are more blocks than units, some blocks have none.
struct RequestCut {
  const std::int64_t* first_unit;  // (B + 1), by sum_units
  std::int64_t B, heads;           // heads of a request: K/V heads, times the blocks of Br rows of Q that each has
  std::int64_t blocks;
  int splits;

  __device__ std::int64_t units(std::int64_t request) const { return first_unit[request + 1] - first_unit[request]; }
  /// Heads are numbered through (B, heads).
  __device__ std::int64_t begin_of_head(std::int64_t head) const {
    const std::int64_t request = head / heads;
    return first_unit[request] * heads + head % heads * units(request);
  }
  __device__ std::int64_t end_of_head(std::int64_t head) const { return begin_of_head(head) + units(head / heads); }

  /// The request that has a unit of the sequence.
  __device__ std::int64_t request_with(std::int64_t of_unit) const {
    std::int64_t low = 0, high = B;  // the request is low or a later one, and before high
    // TODO(21.2) A request has the units from heads·first_unit[request] on. Find it by halving the interval (about 4
    // lines).
    // BEGIN 21.2
    WORKBOOK_TODO(21.2);
    // END 21.2
    return low;
  }
  __device__ std::int64_t head_with(std::int64_t of_unit) const {
    const std::int64_t request = request_with(of_unit);
    return request * heads + (of_unit - heads * first_unit[request]) / units(request);
  }

  __device__ Section section_of_head(std::int64_t head) const {
    const std::int64_t own = units(head / heads), all = heads * first_unit[B];
    if (splits == 0) return {0, 0, {1, all, min(blocks, all)}};
    return {begin_of_head(head), head * splits, {1, own, min(std::int64_t(splits), own)}};
  }
  /// A block has the units from begin(block) to end(block) - 1.
  __device__ std::int64_t boundary(std::int64_t block, int next) const {
    const Section section = section_of_head(splits == 0 ? 0 : block / splits);
    return section.first_unit + section.cut.begin(min(block - section.first_block + next, section.cut.blocks));
  }
  __device__ std::int64_t begin(std::int64_t block) const { return boundary(block, 0); }
  __device__ std::int64_t end(std::int64_t block) const { return boundary(block, 1); }

  // As in chapter 20: the blocks that share a head, and the index of a block's partial result for it.
  __device__ std::int64_t block_with(std::int64_t head, std::int64_t unit) const {
    const Section section = section_of_head(head);
    return section.first_block + section.cut.block_with(unit - section.first_unit);
  }
  __device__ std::int64_t first_block(std::int64_t head) const { return block_with(head, begin_of_head(head)); }
  __device__ std::int64_t last_block(std::int64_t head) const { return block_with(head, end_of_head(head) - 1); }
  __device__ std::int64_t partial(std::int64_t block, std::int64_t head) const {
    return 2 * block + (begin(block) >= begin_of_head(head) ? 0 : 1);
  }
};

}  // namespace ch21
