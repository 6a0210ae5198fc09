// Chapter 7, the bf16 path: the kernels of chapters 5 and 6 with bf16 instead of fp16.
//
// Only the element type changes, and with it the conversions between float and element. The kernels do not change:
// bf16.cu compiles their files again. P and dS are rounded with u = 2^-8 instead of 2^-11; in return, values beyond
// fp16's range neither overflow nor underflow.
//
// Source: Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training", section 3.
// Test it: ./workbook test 7.2
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch07 {

/// Exercise 7.2. y (n) = x (n), rounded to nearest even, and the conversion back. Any n >= 0; the arrays are 16-byte
/// aligned, in device memory.
void cast(const float* x, __nv_bfloat16* y, std::int64_t n);
void cast(const __nv_bfloat16* x, float* y, std::int64_t n);
/// y (n) = x (n), rounded stochastically with the low 16 bits of random (n): away from zero with a probability equal to
/// the discarded fraction of a step.
void cast_stochastically(const float* x, const std::uint32_t* random, __nv_bfloat16* y, std::int64_t n);

}  // namespace ch07
