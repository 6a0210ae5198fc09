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
  const std::int64_t thread = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x;
  const std::int64_t threads = gridDim.x * std::int64_t(blockDim.x);
  bool non_finite = false;

  for (std::int64_t i = thread; i < n / 4; i += threads) {
    const uint2 codes = reinterpret_cast<const uint2*>(scaled)[i];
    const half* gradients = reinterpret_cast<const half*>(&codes);
    float values[4];
    for (int k = 0; k < 4; ++k) {
      values[k] = __half2float(gradients[k]) * inverse_scale;
      non_finite |= !isfinite(values[k]);
    }
    reinterpret_cast<float4*>(unscaled)[i] = make_float4(values[0], values[1], values[2], values[3]);
  }
  for (std::int64_t i = n / 4 * 4 + thread; i < n; i += threads) {
    const float value = __half2float(scaled[i]) * inverse_scale;
    non_finite |= !isfinite(value);
    unscaled[i] = value;
  }

  if (__any_sync(0xffffffffu, non_finite) && threadIdx.x % 32 == 0) atomicOr(found_non_finite, 1);
  // END 7.5
}

}  // namespace

void unscale(const half* scaled, float* unscaled, std::int64_t n, float scale, int* found_non_finite) {
  const std::int64_t threads = 256, blocks = std::clamp<std::int64_t>((n / 4 + threads - 1) / threads, 1, 1024);
  workbook::cuda::launch(unscale_kernel, dim3(blocks), dim3(threads), 0, scaled, unscaled, n, 1 / scale,
                         found_non_finite);
}

}  // namespace ch07
