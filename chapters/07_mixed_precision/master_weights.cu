// Chapter 7, master weights: one step of the optimiser in fp32, and the cast to fp16, in one kernel.
//
// Source: Micikevicius et al. 2017, "Mixed Precision Training", section 3.1.
// Test it: ./workbook test 7.6
#include "master_weights.hpp"

#include <algorithm>

#include "common/cuda/kernel.hpp"

namespace ch07 {
namespace {

/// momentum = decay·momentum + gradients, master = master - rate·momentum, weights = master in fp16. If the flag is
/// set, nothing changes. Any number of threads.
__global__ void update_kernel(float* __restrict__ master,           // (n)
                              float* __restrict__ momentum,         // (n)
                              half* __restrict__ weights,           // (n)
                              const float* __restrict__ gradients,  // (n)
                              std::int64_t n, float rate, float decay,
                              const int* __restrict__ found_non_finite) {  // (1)
  // TODO(7.6) The whole kernel, in one pass (about 24 lines):
  //   if a gradient was not finite, change nothing
  //   for each group of four adjacent weights, with one 16-byte access per fp32 array and one 8-byte store for the
  //   copy:
  //     the new momentum from the old one and the gradient; the new master weight from the old one and the momentum
  //     the fp16 copy, from the new master weight
  //   the same for the n % 4 weights of the tail
  // BEGIN 7.6
  WORKBOOK_TODO(7.6);
  // END 7.6
}

}  // namespace

void update_weights(float* master, float* momentum, half* weights, const float* gradients, std::int64_t n, float rate,
                    float decay, const int* found_non_finite) {
  const std::int64_t threads = 128, blocks = std::clamp<std::int64_t>((n / 4 + threads - 1) / threads, 1, 1024);
  workbook::cuda::launch(update_kernel, dim3(blocks), dim3(threads), 0, master, momentum, weights, gradients, n, rate,
                         decay, found_non_finite);
}

}  // namespace ch07
