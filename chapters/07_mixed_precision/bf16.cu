// Chapter 7, the bf16 path: the bf16 conversions, and the kernels of chapters 5 and 6 compiled with them.
//
// Source: Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training", section 3.
// Test it: ./workbook test 7.2
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the kernel files that are included below (convert.hpp)
#include "bf16.hpp"

#include <algorithm>

#include "common/cuda/convert.hpp"
#include "common/cuda/kernel.hpp"

/// The conversions of bf16: everything that the kernels of chapters 5 and 6 need from an element type.
template <>
struct workbook::cuda::Convert<__nv_bfloat16> {
  using Pair = __nv_bfloat162;

  // TODO(7.2) Three functions that CUDA has too: round a float to nearest even; the same for two floats, `low` at the
  // lower address; convert a pair to two floats. And stochastic rounding: if truncation discards a fraction f of a
  // step, round away from zero for 65536 f of the 65536 values of the low 16 bits of `random`, else truncate. Infinity
  // and NaN do not change (about 8 lines).
  // BEGIN 7.2
  static __device__ __nv_bfloat16 rounded(float x) {
    WORKBOOK_TODO(7.2);
  }
  static __device__ __nv_bfloat162 rounded(float low, float high) {
    WORKBOOK_TODO(7.2);
  }
  static __device__ float2 to_floats(__nv_bfloat162 pair) {
    WORKBOOK_TODO(7.2);
  }
  static __device__ __nv_bfloat16 rounded_stochastically(float x, std::uint32_t random) {
    WORKBOOK_TODO(7.2);
  }
  // END 7.2

  // Given: chapter 6 stores P and dS through it (convert.hpp).
  static __device__ half bits_as_half(__nv_bfloat16 x) { return __ushort_as_half(__bfloat16_as_ushort(x)); }
};

// The kernels of chapters 5 and 6 again, with bf16 as their element type.
#include "05_causal/causal.cu"
#include "06_backward/backward.cu"
#include "06_backward/prepare_rows.cu"

namespace ch07 {
namespace {

using Bf16 = workbook::cuda::Convert<__nv_bfloat16>;

/// A grid-stride loop over pairs. The kernels below convert an odd last element separately.
template <class From, class To, class Convert>
__device__ void cast_pairs(const From* __restrict__ x, To* __restrict__ y, std::int64_t pairs, const Convert& convert) {
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < pairs;
       i += gridDim.x * std::int64_t(blockDim.x))
    y[i] = convert(x[i]);
}

__global__ void to_bf16_kernel(const float* __restrict__ x,    // (n)
                               __nv_bfloat16* __restrict__ y,  // (n)
                               std::int64_t n) {
  cast_pairs(reinterpret_cast<const float2*>(x), reinterpret_cast<__nv_bfloat162*>(y), n / 2,
             [](float2 two) { return Bf16::rounded(two.x, two.y); });
  if (n % 2 != 0 && blockIdx.x == 0 && threadIdx.x == 0) y[n - 1] = Bf16::rounded(x[n - 1]);
}

__global__ void to_float_kernel(const __nv_bfloat16* __restrict__ x,  // (n)
                                float* __restrict__ y,                // (n)
                                std::int64_t n) {
  cast_pairs(reinterpret_cast<const __nv_bfloat162*>(x), reinterpret_cast<float2*>(y), n / 2,
             [](__nv_bfloat162 pair) { return Bf16::to_floats(pair); });
  if (n % 2 != 0 && blockIdx.x == 0 && threadIdx.x == 0)
    y[n - 1] = Bf16::to_floats(__nv_bfloat162(x[n - 1], x[n - 1])).x;
}

__global__ void to_bf16_stochastic_kernel(const float* __restrict__ x,               // (n)
                                          const std::uint32_t* __restrict__ random,  // (n)
                                          __nv_bfloat16* __restrict__ y,             // (n)
                                          std::int64_t n) {
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < n;
       i += gridDim.x * std::int64_t(blockDim.x))
    y[i] = Bf16::rounded_stochastically(x[i], random[i]);
}

dim3 cast_grid(std::int64_t n) {
  return dim3(std::clamp<std::int64_t>((n / 2 + 255) / 256, 1, 1024));
}

}  // namespace

void cast(const float* x, __nv_bfloat16* y, std::int64_t n) {
  workbook::cuda::launch(to_bf16_kernel, cast_grid(n), dim3(256), 0, x, y, n);
}
void cast(const __nv_bfloat16* x, float* y, std::int64_t n) {
  workbook::cuda::launch(to_float_kernel, cast_grid(n), dim3(256), 0, x, y, n);
}

void cast_stochastically(const float* x, const std::uint32_t* random, __nv_bfloat16* y, std::int64_t n) {
  workbook::cuda::launch(to_bf16_stochastic_kernel, cast_grid(2 * n), dim3(256), 0, x, random, y, n);
}

}  // namespace ch07
