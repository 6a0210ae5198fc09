// Chapter 7, the bf16 path: the kernels of chapters 5 and 6 on bf16 in place of fp16.
//
// What changes: the element type, and with it how a float is rounded to an element and read back. Not one line of the
// kernels: bf16.cu compiles their files once more.
// What it costs: P and dS are rounded at 2^-8 in place of 2^-11. What it gains: nothing overflows or underflows.
//
// Source: Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training", section 3.
// Test it: ./workbook test 7.2
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch07 {

/// Exercise 7.2. y (n) = x (n), rounded to nearest even, and the other way round. Any n >= 0; arrays start at multiples
/// of 16 bytes. Device memory.
void cast(const float* x, __nv_bfloat16* y, std::int64_t n);
void cast(const __nv_bfloat16* x, float* y, std::int64_t n);
/// y (n) = one of the two bf16 around each of x (n): the one further from 0 with a probability as x is near to it, by
/// the low 16 bits of random (n).
void cast_by_chance(const float* x, const std::uint32_t* random, __nv_bfloat16* y, std::int64_t n);

}  // namespace ch07
