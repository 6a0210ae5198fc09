// Chapter 6: what each query brings to the backward pass, once for all kernels that need it.
//
// Source: Dao et al. 2022, appendix B.2: the softmax's backward needs only D = rowsum(dO∘O) of all of its row.
// Test it: ./workbook test 6.2
#include <cstdint>

#include "backward.hpp"
#include "fragments.hpp"

namespace ch06 {
namespace {

constexpr int prepare_threads = 128;

/// One QueryRow for each of `count` queries: d / 8 neighbouring lanes a query.
template <int d>
__global__ void prepare(const Element* __restrict__ O,   // (count, d)
                        const Element* __restrict__ dO,  // (count, d)
                        const float* __restrict__ lse,   // (count), natural logarithm, -inf in a fully masked row
                        QueryRow* __restrict__ rows,     // (count)
                        std::int64_t count) {
  constexpr int per_query = d / 8, of_block = prepare_threads / per_query;  // queries of a thread block
  const std::int64_t first = std::int64_t(blockIdx.x) * of_block;
  const int queries = min(std::int64_t(of_block), count - first);
  O += first * d, dO += first * d, lse += first, rows += first;  // from here on they are the thread block's own
  // TODO(6.2) D = rowsum(dO∘O): a lane takes 16 bytes of each, four Pairs, reads them by Convert<Element>::to_floats
  // and sums in fp32; the lanes of a query add up by shuffles. One of them stores LSE·log2(e), or +inf where the LSE is
  // -inf, and D (about 15 lines).
  // BEGIN 6.2
  const int query = threadIdx.x / per_query, lane = threadIdx.x % per_query;
  float D = 0;
  if (query < queries) {
    const uint4 O_eight = reinterpret_cast<const uint4*>(O)[query * per_query + lane];
    const uint4 dO_eight = reinterpret_cast<const uint4*>(dO)[query * per_query + lane];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 a = Convert<Element>::to_floats(reinterpret_cast<const Pair*>(&O_eight)[i]);
      const float2 b = Convert<Element>::to_floats(reinterpret_cast<const Pair*>(&dO_eight)[i]);
      D += a.x * b.x + a.y * b.y;
    }
  }
#pragma unroll
  for (int step = per_query / 2; step > 0; step /= 2) D += __shfl_xor_sync(0xffffffff, D, step);
  if (query < queries && lane == 0) rows[query] = {lse[query] == -INFINITY ? INFINITY : lse[query] * log2_e, D};
  // END 6.2
}

template <class Gradient>
void start_prepare(const BackwardCall<Element, Gradient>& call, QueryRow* rows) {
  const std::int64_t count = call.shape.lse_size();
  with_head_dim(call.shape.d, [&](auto d) {
    workbook::cuda::launch(prepare<d>, blocks(1, count, prepare_threads / (d / 8)), dim3(prepare_threads), 0, call.O,
                           call.dO, call.lse, rows, count);
  });
}

}  // namespace

template <>
void prepare_rows(const BackwardCall<Element>& call, float2* rows) {
  start_prepare(call, rows);
}
template <>
void prepare_rows(const BackwardCall<Element, float>& call, float2* rows) {
  start_prepare(call, rows);
}

}  // namespace ch06
