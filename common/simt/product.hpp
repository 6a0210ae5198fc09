// The arithmetic of the tensor cores, for WMMA and for mma: 16-bit operands widened to float, products of small
// matrices, and whether an operand was ever set. Internal.
//
// A product is summed in float, in the order of k, one rounding a step; products of two half, bfloat16 or tf32 numbers
// are exact in float, so that fused and separate multiply-adds agree. Tensor cores keep fewer bits while they add
// (notes/simulator.md): results differ within the tolerance that tests derive.
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

/// Fills registers with what unset ones hold.
void fill_unset(void* x, int count, ElementType element);
/// Whether any element still is what registers hold before anything is put into them.
bool any_unset(const void* x, int count, ElementType element);
/// A result that follows from unset operands is reported once: it holds ordinary NaNs from then on.
void make_nans_ordinary(float* values, int count);

}  // namespace simt
