// Chapter 7, the bf16 path: what the kernels of chapters 5 and 6 need to know of bf16, and those kernels with it.
//
// Source: Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training", section 3.
// Test it: ./workbook test 7.2
#include "bf16.hpp"

#include <algorithm>

#include "common/cuda/dispatch.hpp"
#include "common/cuda/kernel.hpp"

namespace ch07 {

// TODO(7.2) The bf16 nearest to a float, ties to even; the same for two floats, `low` at the lower address; and two
// floats from a pair. CUDA has a function for each (about 3 lines).
// BEGIN 7.2
__device__ inline __nv_bfloat16 to_bf16(float x) {
  WORKBOOK_TODO(7.2);
}
__device__ inline __nv_bfloat162 to_bf16(float low, float high) {
  WORKBOOK_TODO(7.2);
}
__device__ inline float2 to_floats(__nv_bfloat162 pair) {
  WORKBOOK_TODO(7.2);
}
// END 7.2

// Chapters 5 and 6 say `half` for their element, `half2` for two of them, and convert by three functions of CUDA. In
// these two namespaces here is what those names mean: C++ looks there before it looks among CUDA's own.
// NOLINTBEGIN(bugprone-reserved-identifier)
namespace bf16_for_half {
using half = __nv_bfloat16;
using half2 = __nv_bfloat162;
__device__ inline half __float2half_rn(float x) {
  return to_bf16(x);
}
__device__ inline half2 __floats2half2_rn(float low, float high) {
  return to_bf16(low, high);
}
__device__ inline float2 __half22float2(half2 pair) {
  return to_floats(pair);
}
}  // namespace bf16_for_half
}  // namespace ch07

namespace ch05 {
using ch07::bf16_for_half::half, ch07::bf16_for_half::half2, ch07::bf16_for_half::__floats2half2_rn;
}
namespace ch06 {
using ch07::bf16_for_half::half, ch07::bf16_for_half::half2, ch07::bf16_for_half::__float2half_rn,
    ch07::bf16_for_half::__floats2half2_rn, ch07::bf16_for_half::__half22float2;
}
// NOLINTEND(bugprone-reserved-identifier)

namespace nvcuda::wmma {

/// Chapter 6 stores P and dS from an accumulator of halves, and CUDA has none of bf16. So this one has bf16 elements
/// where that one has halves, and goes to memory through it: 16 bits are moved, whatever they mean.
template <>
struct fragment<accumulator, 16, 16, 16, __nv_bfloat16> {
  static constexpr int num_elements = fragment<accumulator, 16, 16, 16, __half>::num_elements;
  __nv_bfloat16 x[num_elements];
};
__device__ inline void store_matrix_sync(__nv_bfloat16* tile,
                                         const fragment<accumulator, 16, 16, 16, __nv_bfloat16>& values,
                                         unsigned columns, layout_t layout) {
  fragment<accumulator, 16, 16, 16, __half> codes;
#pragma unroll
  for (int e = 0; e < codes.num_elements; ++e) codes.x[e] = __ushort_as_half(__bfloat16_as_ushort(values.x[e]));
  store_matrix_sync(reinterpret_cast<__half*>(tile), codes, columns, layout);
}

}  // namespace nvcuda::wmma

#include "05_causal/causal.cu"
#include "06_backward/backward.cu"
#include "06_backward/prepare_rows.cu"

namespace ch07 {
namespace {

/// Two elements a thread, then the last one of an odd number.
template <class From, class To, class Convert>
__device__ void cast_pairs(const From* __restrict__ x, To* __restrict__ y, std::int64_t pairs, const Convert& convert) {
  for (std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x; i < pairs;
       i += gridDim.x * std::int64_t(blockDim.x))
    y[i] = convert(x[i]);
}

__global__ void to_bf16_kernel(const float* __restrict__ x, __nv_bfloat16* __restrict__ y, std::int64_t n) {
  cast_pairs(reinterpret_cast<const float2*>(x), reinterpret_cast<__nv_bfloat162*>(y), n / 2,
             [](float2 two) { return to_bf16(two.x, two.y); });
  if (n % 2 != 0 && blockIdx.x == 0 && threadIdx.x == 0) y[n - 1] = to_bf16(x[n - 1]);
}

__global__ void to_float_kernel(const __nv_bfloat16* __restrict__ x, float* __restrict__ y, std::int64_t n) {
  cast_pairs(reinterpret_cast<const __nv_bfloat162*>(x), reinterpret_cast<float2*>(y), n / 2,
             [](__nv_bfloat162 pair) { return to_floats(pair); });
  if (n % 2 != 0 && blockIdx.x == 0 && threadIdx.x == 0) y[n - 1] = to_floats(__nv_bfloat162(x[n - 1], x[n - 1])).x;
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

void forward(const ForwardCall& call) {
  ch05::causal({call.shape, call.scale, call.causal, call.Q, call.K, call.V, call.O, call.lse},
               {call.Br, call.Bc, call.Br / 32});
}

void backward(const BackwardCall& call) {
  ch06::backward(ch06::DeviceCall<__nv_bfloat16>{call.shape, call.scale, call.causal, call.Q, call.K, call.V, call.O,
                                                 call.dO, call.lse, call.dQ, call.dK, call.dV, call.rows},
                 {call.warps, call.team});
}

}  // namespace ch07
