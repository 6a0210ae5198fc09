// Chapter 6: what each query brings to the backward pass, once for all kernels that need it.
//
// Source: Dao et al. 2022, appendix B.2: the softmax's backward needs only D = rowsum(dO∘O) of all of its row.
// Test it: ./workbook test 6
#include <cstdint>

#include "backward.hpp"
#include "fragments.hpp"

namespace ch06 {
namespace {

/// One Row for each of `count` queries, from its LSE and its rows of O and dO: d / 8 neighbouring lanes a query.
template <int d>
__global__ void prepare(const half* __restrict__ O, const half* __restrict__ dO, const float* __restrict__ lse,
                        Row* __restrict__ rows, std::int64_t count) {
  // TODO(6.2) D = rowsum(dO∘O): a lane takes 16 bytes of each, sums in fp32, and the lanes of a query add up by
  // shuffles. One of them stores LSE·log2(e), or +inf where the LSE is -inf, and D (about 17 lines).
  // BEGIN 6.2
  WORKBOOK_TODO(6.2);
  // END 6.2
}

}  // namespace

template <class Gradient>
void prepare_rows(const DeviceCall<Gradient>& call) {
  const int threads = 128;
  const std::int64_t count = call.shape.lse_size();
  with_head_dim(call.shape.d, [&](auto d) {
    workbook::cuda::launch(prepare<d>, blocks(1, count, threads / (d / 8)), dim3(threads), 0, call.O, call.dO, call.lse,
                           call.rows, count);
  });
}
template void prepare_rows(const DeviceCall<half>&);
template void prepare_rows(const DeviceCall<float>&);

}  // namespace ch06
