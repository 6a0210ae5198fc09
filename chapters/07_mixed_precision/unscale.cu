// Chapter 7, unscaling: one pass over the gradients of all weights.
//
// Costs: 2 bytes read and 4 written per gradient, and at most one atomic per warp, none in a good step.
// Source: PyTorch, aten/src/ATen/native/cuda/AmpKernels.cu (_amp_foreach_non_finite_check_and_unscale_).
// Test it: ./workbook test 7.5
#include "unscale.hpp"

#include <algorithm>

#include "common/cuda/kernel.hpp"

namespace ch07 {
namespace {

/// unscaled (n) = scaled (n) · inverse_scale. A grid-stride loop over groups of four adjacent gradients, 8 bytes in and
/// 16 bytes out; the n % 4 gradients of the tail one by one. Thread blocks consist of whole warps.
__global__ void unscale_kernel(const half* __restrict__ scaled,  // (n)
                               float* __restrict__ unscaled,     // (n)
                               std::int64_t n, float inverse_scale,
                               int* __restrict__ found_non_finite) {  // (1)
  // TODO(7.5) Groups of four, one uint2 in and one float4 out, then the n % 4 gradients of the tail. Record whether any
  // result was not finite. The lanes of a warp vote; if any recorded one, one lane sets the flag with an atomic (about
  // 20 lines).
  // BEGIN 7.5
  WORKBOOK_TODO(7.5);
  // END 7.5
}

}  // namespace

void unscale(const half* scaled, float* unscaled, std::int64_t n, float scale, int* found_non_finite) {
  const std::int64_t threads = 256, blocks = std::clamp<std::int64_t>((n / 4 + threads - 1) / threads, 1, 1024);
  workbook::cuda::launch(unscale_kernel, dim3(blocks), dim3(threads), 0, scaled, unscaled, n, 1 / scale,
                         found_non_finite);
}

}  // namespace ch07
