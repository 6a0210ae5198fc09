// The arithmetic of the tensor cores, for WMMA and for mma: 16-bit operands widened to float, products of small
// matrices, and whether an operand was ever set. Internal.
//
// A product is summed in float, in the order of k, one rounding a step; products of two half, bfloat16 or tf32 numbers
// are exact in float, so that fused and separate multiply-adds agree. Tensor cores keep fewer bits while they add
// (notes/simulator.md): results differ within the tolerance that tests derive. Products of e4m3 are summed as Hopper
// sums them, bit for bit: there the bits that are lost are what a kernel must be written for.
#pragma once

#include <cstdint>

#include "common/simt/runtime.hpp"

namespace simt {

/// Floats of `count` operand elements; tf32 loses the 13 bits that the machine ignores.
void widen(const void* elements, ElementType element, float* values, int count);

/// c (m, n) += a (m, k) b (k, n), all row-major, for the shapes of WMMA and mma.
void multiply_matrices(int m, int n, int k, const float* a, const float* b, float* c);

/// c (m, n) += a (m, k) b (k, n), all row-major, for any m and n that are multiples of 8.
void multiply_rows_by_columns(int m, int n, int k, const float* a, const float* b, float* c);

/// c (m, n) += a (m, 32) b (32, n), all row-major, of e4m3 numbers, with m and n multiples of 8, as one wgmma of Hopper
/// adds them: c and the 32 products are cut off, towards zero, 13 bits below the leading bit of the largest of them;
/// their sum is exact, and is cut off 13 bits below its own. The leading bit of a product is taken to be where those of
/// its factors say, 1.5 · 1.5 at 1. Measured on an H200, 512,000 sums without a difference; after the model of Khattak
/// and Mikaitis 2025, "Accurate Models of NVIDIA Tensor Cores".
void multiply_e4m3(int m, int n, const float* a, const float* b, float* c);

/// Fills registers with what unset ones hold.
void fill_unset(void* x, int count, ElementType element);
/// Whether any element still is what registers hold before anything is put into them.
bool any_unset(const void* x, int count, ElementType element);
/// A result that follows from unset operands is reported once: it holds ordinary NaNs from then on.
void make_nans_ordinary(float* values, int count);

}  // namespace simt
