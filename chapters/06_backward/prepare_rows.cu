// Chapter 6, preprocessing: LSE and D of each query, computed once for all kernels that need them.
//
// Source: Dao et al. 2022, appendix B.2: of a whole row, the softmax's backward needs only D = rowsum(dO∘O).
// Test it: ./workbook test 6.2
#include <cstdint>

#include "backward.hpp"
#include "fragments.hpp"

namespace ch06 {
namespace {

constexpr int prepare_threads = 128;

/// Computes one QueryRow for each of `count` queries; d / 8 adjacent lanes share a query.
template <int d>
__global__ void prepare(const Element* __restrict__ O,   // (count, d)
                        const Element* __restrict__ dO,  // (count, d)
                        const float* __restrict__ lse,   // (count), natural logarithm, -inf in a fully masked row
                        QueryRow* __restrict__ rows,     // (count)
                        std::int64_t count) {
  constexpr int per_query = d / 8, of_block = prepare_threads / per_query;  // queries per thread block
  const std::int64_t first = std::int64_t(blockIdx.x) * of_block;
  const int queries = min(std::int64_t(of_block), count - first);
  O += first * d, dO += first * d, lse += first, rows += first;  // now at this thread block's first query
  // TODO(6.2) D = rowsum(dO∘O). Each lane loads 16 bytes of O and of dO, converts the four Pairs of each to floats and
  // sums eight terms in fp32; shuffles add the sums of a query's lanes. One lane stores the QueryRow: LSE·log2(e),
  // or +inf if the LSE is -inf, and D (about 15 lines).
  // BEGIN 6.2
  WORKBOOK_TODO(6.2);
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
