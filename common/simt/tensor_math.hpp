// The arithmetic of the tensor cores, for WMMA and for mma: conversion of operands to float, small matrix
// multiplications, and detection of uninitialised operands. Internal.
//
// A dot product is accumulated in float, in the order of k, with one rounding per step. The product of two numbers in
// half, bfloat16 or tf32 is exact in float, so fused and separate multiply-adds agree. Tensor cores keep fewer bits in
// their partial sums (notes/simulator.md): results differ within the tolerance that tests derive. e4m3 is accumulated
// bit for bit as on Hopper, because kernels must be written for the loss of bits there.
#pragma once

#include <cstdint>

#include "common/simt/runtime.hpp"

namespace simt {

/// Converts `count` operand elements to float; tf32 loses the 13 bits that the hardware ignores.
void widen(const void* elements, ElementType element, float* values, int count);

/// c (m, n) += a (m, k) b (k, n), all row-major, for the shapes of WMMA and mma.
void multiply_matrices(int m, int n, int k, const float* a, const float* b, float* c);

/// c (m, n) += a (m, k) b (k, n), all row-major, for any m and n that are multiples of 8.
void multiply_rows_by_columns(int m, int n, int k, const float* a, const float* b, float* c);

/// c (m, n) += a (m, 32) b (32, n), all row-major, of e4m3 numbers, with m and n multiples of 8, as one wgmma on
/// Hopper. c and the 32 terms a·b are truncated towards zero, 13 bits below the leading bit of the largest of them.
/// Their sum is exact and is truncated 13 bits below its own leading bit. The leading bit of a term is taken from the
/// exponents of its factors: that of 1.5 · 1.5 is at 1. Measured on an H200, 512,000 sums without a difference; after
/// the model of Khattak and Mikaitis 2025, "Accurate Models of NVIDIA Tensor Cores".
void multiply_e4m3(int m, int n, const float* a, const float* b, float* c);

/// Fills registers with the pattern of uninitialised registers.
void fill_unset(void* x, int count, ElementType element);
/// Whether any element still has the pattern of uninitialised registers.
bool any_unset(const void* x, int count, ElementType element);
/// Replaces the pattern by ordinary NaNs, so that a result of uninitialised operands is reported once.
void make_nans_ordinary(float* values, int count);

}  // namespace simt
