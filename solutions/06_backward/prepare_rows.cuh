// Chapter 6: what each query brings to the backward pass, once for all kernels that need it. prepare_rows.cu compiles
// it for fp16.
//
// Source: Dao et al. 2022, appendix B.2: the softmax's backward needs only D = rowsum(dO∘O) of all of its row.
// Test it: ./workbook test 6
#pragma once

#include <cstdint>

#include "backward.hpp"
#include "fragments.hpp"

namespace ch06 {
namespace {

/// One Row for each of `count` queries, from its LSE and its rows of O and dO: d / 8 neighbouring lanes a query.
template <class Element, int d>
__global__ void prepare(const Element* __restrict__ O, const Element* __restrict__ dO, const float* __restrict__ lse,
                        Row* __restrict__ rows, std::int64_t count) {
  // TODO(6.2) D = rowsum(dO∘O): a lane takes 16 bytes of each, four Pair<Element>, reads them by
  // Convert<Element>::to_floats and sums in fp32; the lanes of a query add up by shuffles. One of them stores
  // LSE·log2(e), or +inf where the LSE is -inf, and D (about 17 lines).
  // BEGIN 6.2
  constexpr int lanes = d / 8;
  const std::int64_t query = std::int64_t(blockIdx.x) * (blockDim.x / lanes) + threadIdx.x / lanes;
  const int lane = threadIdx.x % lanes;
  float D = 0;
  if (query < count) {
    const uint4 O_eight = reinterpret_cast<const uint4*>(O)[query * lanes + lane];
    const uint4 dO_eight = reinterpret_cast<const uint4*>(dO)[query * lanes + lane];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 a = Convert<Element>::to_floats(reinterpret_cast<const Pair<Element>*>(&O_eight)[i]);
      const float2 b = Convert<Element>::to_floats(reinterpret_cast<const Pair<Element>*>(&dO_eight)[i]);
      D += a.x * b.x + a.y * b.y;
    }
  }
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) D += __shfl_xor_sync(0xffffffff, D, step);
  if (query < count && lane == 0) rows[query] = {lse[query] == -INFINITY ? INFINITY : lse[query] * log2_e, D};
  // END 6.2
}

}  // namespace

template <class Element, class Gradient>
void prepare_rows(const BackwardCall<Element, Gradient>& call, float2* rows) {
  const int threads = 128;
  const std::int64_t count = call.shape.lse_size();
  with_head_dim(call.shape.d, [&](auto d) {
    workbook::cuda::launch(prepare<Element, d>, blocks(1, count, threads / (d / 8)), dim3(threads), 0, call.O, call.dO,
                           call.lse, rows, count);
  });
}

}  // namespace ch06
