// The element type of a kernel, and its conversions.
#pragma once

#include "common/cuda/kernel.hpp"

/// The element type of a kernel file that begins with `using Element = WORKBOOK_ELEMENT;`. It is half, unless the
/// compiled file defines it as another type with a Convert specialisation before it includes the kernel file. It is a
/// macro, since an #include has no parameters.
#ifndef WORKBOOK_ELEMENT
#define WORKBOOK_ELEMENT half
#endif

namespace workbook::cuda {

/// Converts between float and Element. Each element type has a specialisation; the one for bf16 is an exercise of
/// chapter 7.
template <class Element>
struct Convert;

template <>
struct Convert<half> {
  using Pair = half2;  ///< two elements

  /// Rounds to nearest, ties to even. Of two floats, `low` is stored at the lower address.
  static __device__ half rounded(float x) { return __float2half_rn(x); }
  static __device__ half2 rounded(float low, float high) { return __floats2half2_rn(low, high); }
  static __device__ float2 to_floats(half2 pair) { return __half22float2(pair); }

  /// The element's 16 bits reinterpreted as a half, because WMMA has half accumulators but no bf16 ones.
  static __device__ half bits_as_half(half x) { return x; }
};

}  // namespace workbook::cuda
