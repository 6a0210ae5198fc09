// Chapter 17: which elements of P are dropped. It is decided by the seed and by the element's place, the numbers of its
// head, query and key, and by nothing else: not by tiles, threads or the order in which anything happens.
//
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3 and table 2; Srivastava et al.
// 2014, "Dropout". Test it: ./workbook test 17.1
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"
#include "rope_dropout.hpp"

namespace ch17 {
namespace {

// Of Philox4x32: what a round multiplies the first and the third word of the counter with, and what is added to the two
// words of the key from one round to the next.
constexpr std::uint32_t multiplier_x = 0xD2511F53, multiplier_z = 0xCD9E8D57;
constexpr std::uint32_t key_step_x = 0x9E3779B9, key_step_y = 0xBB67AE85;

/// Philox4x32-10: 128 random bits, a function of the counter and the key.
__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
  // TODO(17.1) Ten rounds. Each multiplies counter.x and counter.z, to products of 64 bits: a low word by *, a high one
  // by __umulhi. The new counter, from x to w: the high word of z's product ^ y ^ key.x, its low word, the high word of
  // x's product ^ w ^ key.y, its low word. Then the key takes its step (about 8 lines).
  // BEGIN 17.1
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint4 old = counter;
    counter.x = __umulhi(multiplier_z, old.z) ^ old.y ^ key.x;
    counter.y = multiplier_z * old.z;
    counter.z = __umulhi(multiplier_x, old.x) ^ old.w ^ key.y;
    counter.w = multiplier_x * old.x;
    key.x += key_step_x, key.y += key_step_y;
  }
  return counter;
  // END 17.1
}

/// Byte number `byte` of word number `word`, 0 to 3 each.
__device__ __forceinline__ int byte_of(const uint4& drawn, int word, int byte) {
  const std::uint32_t of_word = word == 0 ? drawn.x : word == 1 ? drawn.y : word == 2 ? drawn.z : drawn.w;
  return int(of_word >> 8 * byte & 255);
}

// Of a block of 32 queries and 32 keys, Philox is asked once for 16 pairs: those whose queries lie 8 apart, and whose
// keys do. Their counter is the query's number among those that have a counter, the same of the key, and the head's:
//
//   counter = {key / 32 * 8 + key % 8, query / 32 * 8 + query % 8, head, 0}
//
// and each of them has one byte: number key / 8 % 4 of word number query / 8 % 4. It is dropped if its byte is less
// than `dropped`. All 16 lie in one lane, and do so if the block is transposed too.
//
// A lane has 32 pairs of such a block: two row tiles of four parts (16, 8), four elements each. transposed: of Sᵀ, a
// row is a key and a column is a query.

/// Which of a lane's 32 pairs are kept: bit 16·i + 4·j + e is 1 if element e of part j of row tile i is. The block's
/// first query and key are multiples of 32; `head` counts through the batch.
template <bool transposed>
__device__ __forceinline__ std::uint32_t kept_pairs(const Dropout& dropout, int head, int first_query, int first_key) {
  workbook::cuda::note("drawn block", (first_query / 32LL << 32) + first_key / 32);
  const int lane = threadIdx.x % 32;
  std::uint32_t kept = 0;
  // TODO(17.2) Ask Philox twice: for the elements e = 0 and 2 of all parts, which lie in one column modulo 8, and for 1
  // and 3. Look at the bytes of each one's 16 pairs (about 11 lines).
  // BEGIN 17.2
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int row = lane / 4, column = lane % 4 * 2 + c;  // modulo 8
    const int query = first_query / 4 + (transposed ? column : row), key = first_key / 4 + (transposed ? row : column);
    const uint4 drawn = philox(uint4{unsigned(key), unsigned(query), unsigned(head), 0}, dropout.seed);
#pragma unroll
    for (int row_part = 0; row_part < 4; ++row_part)  // eight rows each: i = row_part / 2, e / 2 = row_part % 2
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int byte = transposed ? byte_of(drawn, j, row_part) : byte_of(drawn, row_part, j);
        if (byte >= dropout.dropped) kept |= 1u << (8 * (row_part / 2 * 2) + 4 * j + row_part % 2 * 2 + c);
      }
  }
  // END 17.2
  return kept;
}

constexpr std::uint32_t all_kept = 0xffffffff;
/// Whether a pair is kept, by the bits of kept_pairs; j modulo 4.
__device__ __forceinline__ bool keeps(std::uint32_t kept, int i, int j, int e) {
  return (kept >> (16 * i + 4 * j + e) & 1) != 0;
}

}  // namespace
}  // namespace ch17
