// Chapter 21: requests that share their first keys, such as instructions. The shared prefix is one request with the
// rows of Q of all others, so its pages are read once per 16 rows, not once per request. What a request has after the
// prefix is a cache of its own. Both results of a row are merged by their LSE.
//
// Source: FlashInfer, include/flashinfer/attention/cascade.cuh; Juravsky et al. 2024 (Hydragen), section 3.
// Test it: ./workbook test 21.11
#pragma once

#include <cstdint>

#include "common/cuda/dispatch.hpp"
#include "common/cuda/kernel.hpp"
#include "paged_cache.hpp"

namespace ch21 {
namespace {

/// The rows of Q of a call: each of B requests has `rows` = G·Nq rows for each of its Hkv heads of K and V.
struct Batch {
  std::int64_t B, Hkv, rows;
};

/// Q and O are (B, Hkv, rows, d). For the prefix, they are (Hkv, B·rows, d): a head has the rows of all requests. The
/// index there of row `row` of Q.
__device__ __forceinline__ std::int64_t row_in_prefix(const Batch& batch, std::int64_t row) {
  // TODO(21.11) Split the index into request, head and row of the head, and combine them in the other order (about 3
  // lines).
  // BEGIN 21.11
  const std::int64_t head = row / batch.rows % batch.Hkv, request = row / batch.rows / batch.Hkv;
  return (head * batch.B + request) * batch.rows + row % batch.rows;
  // END 21.11
}

/// One thread per 8 elements of Q.
template <class Element, int d>
__global__ void gather_rows(const Element* __restrict__ Q, Element* __restrict__ to, Batch batch) {
  const std::int64_t index = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x, row = index / (d / 8);
  if (row >= batch.B * batch.Hkv * batch.rows) return;
  reinterpret_cast<uint4*>(to + row_in_prefix(batch, row) * d)[index % (d / 8)] =
      reinterpret_cast<const uint4*>(Q + row * d)[index % (d / 8)];
}

/// One warp per row: merges the results over the prefix, (Hkv, B·rows), and over the keys after it, (B, Hkv, rows).
template <class Element, int d>
__global__ void merge_prefix(const Element* __restrict__ O_prefix, const float* __restrict__ lse_prefix,
                             const Element* __restrict__ O_after, const float* __restrict__ lse_after,
                             Element* __restrict__ O, float* __restrict__ lse, Batch batch) {
  const std::int64_t row = std::int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= batch.B * batch.Hkv * batch.rows) return;
  const std::int64_t of_prefix = row_in_prefix(batch, row);
  const float first = lse_prefix[of_prefix], second = lse_after[row];
  float w_first = 0, w_second = 0, merged = 0;
  // TODO(21.12) The weights of both results, which add up to 1, and the merged LSE. The LSEs are natural logarithms.
  // The prefix has keys, but the request may have none after it (about 5 lines).
  // BEGIN 21.12
  const float m = fmaxf(first, second);
  w_first = expf(first - m), w_second = expf(second - m);
  const float sum = w_first + w_second;
  w_first /= sum, w_second /= sum;
  merged = m + logf(sum);
  // END 21.12
  for (int c = threadIdx.x % 32; c < d; c += 32)
    O[row * d + c] = Element(w_first * float(O_prefix[of_prefix * d + c]) + w_second * float(O_after[row * d + c]));
  if (threadIdx.x % 32 == 0) lse[row] = merged;
}

/// One thread per request: the numbers of keys after the prefix.
__global__ void lengths_after(const std::int32_t* lengths, std::int32_t* after, std::int64_t B, int prefix) {
  const std::int64_t request = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (request < B) after[request] = lengths[request] - prefix;
}

/// Scratch memory of a call of paged_cache, and of cascade.
struct Scratch {
  Partial partial;
  std::int64_t* first_unit;
};
template <class Element>
struct CascadeMemory {
  Scratch of_prefix, of_requests;
  Element *Q, *O_prefix;  // (Hkv, B·rows, d)
  Element* O_after;       // (B, Hkv, rows, d)
  float *lse_prefix, *lse_after;
  std::int32_t* lengths;  // (B)
};

/// The same as paged_cache, for requests whose first `prefix` keys are in the same pages, so many that these are whole
/// pages. With the causal mask, each request has its Nq newest keys after the prefix.
template <class Element, int d>
void cascade(const ForwardCall<Element>& call, const CascadeMemory<Element>& memory, int prefix, const Tiles& tiles,
             int splits, int multiprocessors) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const Batch batch{B, Hkv, H / Hkv * Nq};
  const std::int64_t rows = B * Hkv * batch.rows;
  const auto blocks = [](std::int64_t threads) { return workbook::cuda::grid_of((threads + 127) / 128, "B·H·Nq"); };
  ForwardCall<Element> shared = call, own = call;
  shared.shape = {1, rows, Hkv, 1, prefix, d};  // one request, with the rows of all requests
  shared.mask.kind = workbook::Mask::none;
  shared.Q = memory.Q, shared.O = memory.O_prefix, shared.lse = memory.lse_prefix, shared.cache_lengths = nullptr;
  own.O = memory.O_after, own.lse = memory.lse_after;
  own.cache_lengths = memory.lengths, own.pages = call.pages + prefix / call.cache.page_size;

  workbook::cuda::launch(gather_rows<Element, d>, blocks(rows * (d / 8)), dim3(128), 0, call.Q, memory.Q, batch);
  paged_cache(shared, memory.of_prefix.partial, memory.of_prefix.first_unit, {}, tiles, splits, multiprocessors);
  workbook::cuda::launch(lengths_after, blocks(B), dim3(128), 0, call.cache_lengths, memory.lengths, B, prefix);
  paged_cache(own, memory.of_requests.partial, memory.of_requests.first_unit, {}, tiles, splits, multiprocessors);
  workbook::cuda::launch(merge_prefix<Element, d>, blocks(32 * rows), dim3(128), 0, memory.O_prefix, memory.lse_prefix,
                         memory.O_after, memory.lse_after, call.O, call.lse, batch);
}

}  // namespace
}  // namespace ch21
