// Chapter 21: writing the K and V of new tokens into the pages of the cache, at the ends of the requests. K is rotated
// by its position (RoPE, chapter 17) before it is stored, so no later step rotates it again.
//
// Source: FlashInfer, include/flashinfer/page.cuh (AppendPagedKVCache); Su et al. 2021 (RoFormer), section 3.4.2.
// Test it: ./workbook test 21.7
#pragma once

#include <cmath>
#include <cstdint>

#include "common/cuda/dispatch.hpp"
#include "common/cuda/kernel.hpp"
#include "paged_cache.hpp"

namespace ch21 {
namespace {

/// The new tokens of a call: `count` for each request, of which each has a row of K and of V per head.
template <class Element>
struct NewTokens {
  const Element *K, *V;  // (B, Hkv, count, d)
  std::int64_t B, Hkv, count;
};

/// The offset in K and V of element 0 of the key at a position of a request.
__device__ __forceinline__ std::int64_t offset_of_token(const Cache& cache, std::int64_t request, std::int64_t head,
                                                        int position) {
  // TODO(21.7) Look up the page of the position, and add the strides of the page, the head and the key in the page. The
  // cache has pages (about 2 lines).
  // BEGIN 21.7
  WORKBOOK_TODO(21.7);
  // END 21.7
}

/// Rotates 8 pairs by the angles of a position, as in exercises 17.4 and 17.5: element k of `left` is element first + k
/// of a row, and element k of `right` is d/2 elements further on.
template <class Element, int d>
__device__ __forceinline__ void rotate(uint4& left, uint4& right, int position, int first) {
  Element *const x = reinterpret_cast<Element*>(&left), *const y = reinterpret_cast<Element*>(&right);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const double angle = position * pow(10000.0, -2.0 * (first + k) / d);
    const float cosine = float(cos(angle)), sine = float(sin(angle)), a = float(x[k]), b = float(y[k]);
    x[k] = Element(a * cosine - b * sine), y[k] = Element(b * cosine + a * sine);
  }
}

/// One thread per 8 pairs of elements of a new row: elements 8i to 8i + 7, and those d/2 further on.
template <class Element, int d>
__global__ void append(NewTokens<Element> tokens, Element* __restrict__ K, Element* __restrict__ V, Cache cache) {
  constexpr int chunks = d / 16;  // threads per row
  const std::int64_t index = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, row = index / chunks;
  if (row >= tokens.B * tokens.Hkv * tokens.count) return;
  const int first = int(index % chunks) * 8, token = int(row % tokens.count);
  const std::int64_t head = row / tokens.count % tokens.Hkv, request = row / tokens.count / tokens.Hkv;
  const Element *const new_K = tokens.K + row * d + first, *const new_V = tokens.V + row * d + first;
  // TODO(21.8) The token's position follows those of the keys in the cache and of the tokens before it. Store its 16
  // elements of K, rotated, and those of V in the cache, 16 bytes at a time (about 8 lines).
  // BEGIN 21.8
  WORKBOOK_TODO(21.8);
  // END 21.8
}

/// One thread per request, after all tokens are written: the lengths include the new tokens.
__global__ void add_to_lengths(std::int32_t* lengths, std::int64_t B, int count) {
  const std::int64_t request = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (request < B) lengths[request] += count;
}

/// Appends the tokens to the cache. lengths: those of `cache`, to be changed.
template <class Element, int d>
void append_tokens(const NewTokens<Element>& tokens, Element* K, Element* V, const Cache& cache,
                   std::int32_t* lengths) {
  const std::int64_t threads = tokens.B * tokens.Hkv * tokens.count * (d / 16);
  workbook::cuda::launch(append<Element, d>, workbook::cuda::grid_of((threads + 127) / 128, "B·Hkv·count·d/2048"),
                         dim3(128), 0, tokens, K, V, cache);
  workbook::cuda::launch(add_to_lengths, workbook::cuda::grid_of((tokens.B + 127) / 128, "B/128"), dim3(128), 0,
                         lengths, tokens.B, int(tokens.count));
}

}  // namespace
}  // namespace ch21
