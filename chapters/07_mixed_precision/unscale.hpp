// Chapter 7, unscaling: the gradients of all weights, once through the GPU: fp16 in, fp32 out, and a flag.
//
// A network has as many gradients as weights, and this pass does one multiplication for each: it is bound by memory
// alone. So it reads every gradient once and writes it once, in whole sectors, and finds out on the way whether any of
// them is infinite or NaN. Two kernels, one to unscale and one to look, would read everything twice.
//
// Source: PyTorch, aten/src/ATen/native/cuda/AmpKernels.cu (_amp_foreach_non_finite_check_and_unscale_).
// Test it: ./workbook test 7.5
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch07 {

/// Exercise 7.5. unscaled (n) = scaled (n) / scale, in fp32, by a multiplication with 1/scale. *found_non_finite
/// becomes 1 if any of `unscaled` is infinite or NaN, and keeps its value otherwise. Any n >= 0; both arrays start at
/// multiples of 16 bytes. Device memory all three.
void unscale(const half* scaled, float* unscaled, std::int64_t n, float scale, int* found_non_finite);

}  // namespace ch07
