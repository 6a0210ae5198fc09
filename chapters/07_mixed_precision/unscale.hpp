// Chapter 7, unscaling: one pass over the gradients of all weights: fp16 in, fp32 out, and a flag.
//
// A network has one gradient per weight, and this pass does one multiplication per gradient, so it is memory-bound. It
// reads and writes every gradient once, in whole sectors, and checks in the same pass whether any of them is infinite
// or NaN. Two kernels, one to unscale and one to check, would read everything twice.
//
// Source: PyTorch, aten/src/ATen/native/cuda/AmpKernels.cu (_amp_foreach_non_finite_check_and_unscale_).
// Test it: ./workbook test 7.5
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch07 {

/// Exercise 7.5. unscaled (n) = scaled (n) / scale, in fp32, by a multiplication with 1/scale. *found_non_finite
/// becomes 1 if any element of `unscaled` is infinite or NaN, and keeps its value otherwise. Any n >= 0; both arrays
/// are 16-byte aligned. All three pointers are to device memory.
void unscale(const half* scaled, float* unscaled, std::int64_t n, float scale, int* found_non_finite);

}  // namespace ch07
