// What a kernel needs to know of its element type, and which one that is.
#pragma once

#include "common/cuda/kernel.hpp"

/// The element type of a kernel file that says `using Element = WORKBOOK_ELEMENT;` at its top: half, unless the file
/// that is compiled has defined it as another type that Convert knows and then includes the kernel file. A macro, since
/// an #include has no parameters.
#ifndef WORKBOOK_ELEMENT
#define WORKBOOK_ELEMENT half
#endif

namespace workbook::cuda {

/// From float to Element and back. A specialisation for each type that a kernel may have; chapter 7's exercise is bf16.
template <class Element>
struct Convert;

template <>
struct Convert<half> {
  using Pair = half2;  ///< two elements

  /// The nearest, ties to even; of two floats, `low` goes to the lower address.
  static __device__ half rounded(float x) { return __float2half_rn(x); }
  static __device__ half2 rounded(float low, float high) { return __floats2half2_rn(low, high); }
  static __device__ float2 to_floats(half2 pair) { return __half22float2(pair); }

  /// The element's 16 bits as a half, whatever they mean there: WMMA has accumulators of half and none of bf16.
  static __device__ half bits_as_half(half x) { return x; }
};

}  // namespace workbook::cuda
