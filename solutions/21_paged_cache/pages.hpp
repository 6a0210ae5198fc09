// Chapter 21: where the keys of a unit are in the pages of the cache, and loading K and V from there.
//
// Source: Kwon et al. 2023 (PagedAttention), section 4.1; FlashAttention-3, hopper/paged_kv.h: lanes that share rows
// compute each address once.
#pragma once

#include <cstdint>

#include "20_split_kv/phases.hpp"
#include "codes.hpp"
#include "paged_cache.hpp"

namespace ch21 {
namespace {

using namespace ch20;  // the phases of chapter 20

/// The offset of key first_key + lane % 16 in K and V, from the head's first element: the kernel adds head·head_stride.
/// Entries of the table are not read for keys from `end` on, and the offset of such a key means nothing.
__device__ __forceinline__ std::int64_t offset_of_key(const Cache& cache, std::int64_t request, int first_key,
                                                      int end) {
  const int lane = threadIdx.x % 32, in_unit = lane % 16, key = first_key + in_unit;
  const int in_page = key % cache.page_size;
  std::int64_t page = request;
  if (cache.pages != nullptr) {
    // TODO(21.3) The first lane of those whose keys are in the same page reads the entry, unless its key is at `end` or
    // later; the others, lanes 16 to 31 included, get it by a shuffle (about 5 lines).
    // BEGIN 21.3
    const int first_lane = max(0, in_unit - in_page);
    const std::int64_t index = request * cache.pages_per_request + key / cache.page_size;
    std::int32_t entry = 0;
    if (lane == first_lane && key < end) entry = cache.pages[index];
    page = __shfl_sync(all_lanes, entry, first_lane);
    // END 21.3
  }
  return page * cache.page_stride + in_page * cache.key_stride;
}

/// Loads this lane's elements of 16 keys, of which the first `keys` exist: those from there on become zeros, and are
/// not read. K and V are at their head; Stored is Element, or std::uint8_t for codes. `offset` is the offset of key
/// lane % 16.
template <class Element, class Stored, int d, int parts>
__device__ __forceinline__ void load_K(Registers<Element, d, parts>& registers, const Stored* __restrict__ K,
                                       std::int64_t offset, int keys) {
  const int quad = threadIdx.x % 32 / 4, in_quad = threadIdx.x % 4;
  // TODO(21.4) registers.K[r][c], as in 20.2, with the offset of each key from the lane that has it (about 7 lines).
  // BEGIN 21.4
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int key = quad + 8 * r;
    const Stored* const row = K + __shfl_sync(all_lanes, offset, key);
#pragma unroll
    for (int c = 0; c < d / 32; ++c) load_8(registers.K[r][c], row + 32 * c + 8 * in_quad, key < keys);
  }
  // END 21.4
}
template <class Element, class Stored, int d, int parts>
__device__ __forceinline__ void load_V(Registers<Element, d, parts>& registers, const Stored* __restrict__ V,
                                       std::int64_t offset, int keys) {
  const int quad = threadIdx.x % 32 / 4, in_quad = threadIdx.x % 4;
  // TODO(21.5) registers.V[r][c], as in 20.3, with the offset of each key from the lane that has it (about 7 lines).
  // BEGIN 21.5
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int key = 2 * in_quad + r % 2 + 8 * (r / 2);
    const Stored* const row = V + __shfl_sync(all_lanes, offset, key);
#pragma unroll
    for (int c = 0; c < d / 64; ++c) load_8(registers.V[r][c], row + 64 * c + 8 * quad, key < keys);
  }
  // END 21.5
}

}  // namespace
}  // namespace ch21
