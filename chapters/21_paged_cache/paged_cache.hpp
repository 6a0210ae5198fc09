// Chapter 21, the paged KV cache: split-KV decoding of requests with different numbers of keys, whose K and V are in
// pages. O and the LSE, causal or not, with grouped queries.
//
// What changes from chapter 20: the number of keys of a request is in device memory, and changes from step to step. A
// small kernel sums the units of the requests, so the host never needs the numbers, and a CUDA graph can repeat the
// call. The cut goes through these sums; a binary search finds the request of a unit. K and V are in pages of 1 to 256
// keys, in any order. The 16 lanes with the keys of a unit look up their pages once, and the others get the rows by
// shuffles. All other phases are chapter 20's.
// What it costs: 4 bytes of the page table for each K/V head, unit of 16 keys and page that has a key of the unit.
//
// Source: Kwon et al. 2023 (PagedAttention), section 4.1; FlashMLA, csrc/smxx/decode/get_decoding_sched_meta.cu.
// Test it: ./workbook test 21
#pragma once

#include <cstddef>
#include <cstdint>

#include "20_split_kv/split_kv.hpp"
#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch21 {

using ch20::Partial;
using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The tile sizes and the number of warps that kernels are built for, as in chapter 20.
inline constexpr Tiles built[] = {{16, 128, 8}, {16, 32, 2}};

/// The KV cache of a call. Element c of key j of head h of request b is element
/// page·page_stride + h·head_stride + (j % page_size)·key_stride + c of K and of V, where `page` is entry j / page_size
/// of the request's row of the page table.
struct Cache {
  const std::int32_t* lengths;  // (B): the number of keys of each request; nullptr: Nk each
  const std::int32_t* pages;    // (B, pages_per_request), the page table; nullptr: a page per request, page b
  std::int64_t pages_per_request, page_stride, head_stride, key_stride;
  int page_size, Nk;
  __host__ __device__ int length(std::int64_t request) const { return lengths == nullptr ? Nk : lengths[request]; }
};

/// K and V in 8 bits instead of those of a call: the pages, in codes of e4m3, and the scales of K's heads, then of V's
/// (2, Hkv). Code c of head h is c·scale. K = nullptr: the call's own. Only with half.
struct Codes {
  const std::uint8_t *K = nullptr, *V = nullptr;
  const float* scales = nullptr;
};

/// O = softmax(scale·QKᵀ) V and the LSE for every head of Q, over the keys in the cache. `splits`: the thread blocks
/// per head of K and V; 0: chapter 20's cut_of() chooses. first_unit is scratch memory for B + 1 numbers. d is 64 or
/// 128. A row without keys gives O = 0 and an LSE of -inf. Element is half or __nv_bfloat16. Throws
/// std::invalid_argument for sizes that are not built.
template <class Element>
void paged_cache(const ForwardCall<Element>& call, const Partial& partial, std::int64_t* first_unit, const Codes& codes,
                 const Tiles& tiles, int splits, int multiprocessors);

/// Bytes of shared memory per thread block.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch21
