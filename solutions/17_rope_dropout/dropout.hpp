// Chapter 17: which elements of P are dropped. This depends only on the seed and on the indices of the element's head,
// query and key. It does not depend on tile sizes, on threads or on the order of execution.
//
// Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3 and table 2; Srivastava et al.
// 2014, "Dropout". Test it: ./workbook test 17.1
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"
#include "rope_dropout.hpp"

namespace ch17 {
namespace {

// Constants of Philox4x32: the multipliers of counter.x and counter.z in each round, and the increments of the two key
// words after each round.
constexpr std::uint32_t multiplier_x = 0xD2511F53, multiplier_z = 0xCD9E8D57;
constexpr std::uint32_t key_step_x = 0x9E3779B9, key_step_y = 0xBB67AE85;

/// Philox4x32-10: 128 random bits as a function of a counter and a Philox key.
__device__ __forceinline__ uint4 philox(uint4 counter, uint2 key) {
  // TODO(17.1) Ten rounds (about 8 lines). In each, with A = multiplier_x·counter.x and B = multiplier_z·counter.z,
  // both 64 bits wide, the new counter is {high(B) ^ y ^ key.x, low(B), high(A) ^ w ^ key.y, low(A)}, where x, y, z, w
  // are the old counter. `*` returns the low word, __umulhi the high word. After the round, add key_step_x to key.x and
  // key_step_y to key.y.
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

/// Byte `byte` of word `word` of 128 random bits; both indices are 0 to 3.
__device__ __forceinline__ int random_byte(const uint4& drawn, int word, int byte) {
  const std::uint32_t selected = word == 0 ? drawn.x : word == 1 ? drawn.y : word == 2 ? drawn.z : drawn.w;
  return int(selected >> 8 * byte & 255);
}

// In a block of 32 queries and 32 keys, one call of Philox serves 16 pairs: those with equal query % 8 and equal
// key % 8. They use the counter
//
//   counter = {key / 32 * 8 + key % 8, query / 32 * 8 + query % 8, head, 0}
//
// and each pair uses one byte: byte key / 8 % 4 of word query / 8 % 4. The pair is dropped if this byte is less than
// `dropped`. One lane holds all 16 pairs, both in S and in Sᵀ.
//
// A lane holds 32 pairs of a block: two row tiles of four parts (16, 8), with four elements each. If `transposed`, the
// block is one of Sᵀ: a row is a key and a column is a query.

/// The lane's 32 pairs as a mask: bit 16·i + 4·j + e is 1 if element e of part j of row tile i is kept. first_query and
/// first_key are multiples of 32; `head` is indexed across the batch.
template <bool transposed>
__device__ __forceinline__ std::uint32_t kept_pairs(const Dropout& dropout, int head, int first_query, int first_key) {
  workbook::cuda::note("drawn block", (first_query / 32LL << 32) + first_key / 32);
  const int lane = threadIdx.x % 32;
  std::uint32_t kept = 0;
  // TODO(17.2) Call philox twice: elements e = 0 and 2 of all parts are in one column modulo 8, e = 1 and 3 in the
  // next. For each call, set the bits of those of its 16 pairs whose byte is at least dropout.dropped (about 11 lines).
  // BEGIN 17.2
#pragma unroll
  for (int odd = 0; odd < 2; ++odd) {
    const int row = lane / 4, column = lane % 4 * 2 + odd;  // modulo 8
    const int query = first_query / 4 + (transposed ? column : row), key = first_key / 4 + (transposed ? row : column);
    const uint4 drawn = philox(uint4{unsigned(key), unsigned(query), unsigned(head), 0}, dropout.seed);
#pragma unroll
    for (int row_group = 0; row_group < 4; ++row_group)  // of eight rows: i = row_group / 2, e / 2 = row_group % 2
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int byte = transposed ? random_byte(drawn, j, row_group) : random_byte(drawn, row_group, j);
        if (byte >= dropout.dropped) kept |= 1u << (8 * (row_group / 2 * 2) + 4 * j + row_group % 2 * 2 + odd);
      }
  }
  // END 17.2
  return kept;
}

constexpr std::uint32_t all_kept = 0xffffffff;
/// Whether element e of part j of row tile i is kept, according to a mask from kept_pairs; j is 0 to 3.
__device__ __forceinline__ bool is_kept(std::uint32_t kept, int i, int j, int e) {
  return (kept >> (16 * i + 4 * j + e) & 1) != 0;
}

}  // namespace
}  // namespace ch17
