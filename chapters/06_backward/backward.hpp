// Chapter 6, the recomputing backward: dQ, dK and dV from Q, K, V, O, dO and the LSE, with memory that grows like N.
//
// What changes: P is not read, as in the naive backward, but computed again tile by tile where it is needed. Three
// kernels: one number D = rowsum(dO∘O) for each query; dK and dV, one thread block for each K/V tile of keys, past
// which the Q tiles of queries go; dQ, one thread block for each Q tile, past which the K/V tiles go. Each
// gradient has one writer, so that the result is the same in every run.
// What it costs: S and dP are computed in both, seven matrix products in place of five. atomic_backward() takes five.
//
// Source: Dao 2023, section 3.1.2, Algorithm 2; Dao et al. 2022, appendix B.2 (D = rowsum(dO∘O)).
// Test it: ./workbook test 6
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch06 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// The rows that a thread block owns, those of a block that passes by, and the warps, that there are kernels for; the
/// first that fits is taken. Shared memory for d = 64: 76 KB the first, 48 KB the fourth. For d = 128: 174 KB the
/// second, 122 KB the third, 96 KB the fifth. The last is as small as can be, for very many heads on the simulator, and
/// a step of `bench --steps`.
inline constexpr GradientTiles built[] = {{128, 32, 4}, {128, 64, 8}, {64, 64, 4},
                                          {64, 32, 2},  {32, 64, 2},  {32, 32, 1}};

/// Fills `rows`, scratch (B, H, Nq), with what each query brings: LSE·log2(e), or +inf for a fully masked row, and
/// D = rowsum(dO∘O). The other functions call it. As all of them it is there for half, and in chapter 7 for bf16, with
/// gradients of that type or in float.
template <class Element, class Gradient>
void prepare_rows(const BackwardCall<Element, Gradient>& call, float2* rows);

/// dQ, dK and dV for every head, in three kernels. d is 32, 64 or 128. std::invalid_argument for sizes that are not
/// built.
template <class Element>
void backward(const BackwardCall<Element>& call, float2* rows, const GradientTiles& tiles);

/// The same with gradients in float, which tests compare: with the smallest tiles of each d, whatever the device.
template <class Element>
void backward_to_float(const BackwardCall<Element, float>& call, float2* rows);

/// Bytes of shared memory that a thread block takes; 0: there is no kernel of these sizes.
template <class Element>
std::size_t shared_bytes(int d, const GradientTiles& tiles);

/// The same gradients with five matrix products, as FlashAttention-2 has them: the kernel that forms dS for dK also
/// multiplies dQ += dS K. But every K/V tile has a part of each dQ, and the thread blocks run at the same time: the
/// parts meet in device memory, by atomic additions in fp32 to dQ_sum, scratch of dQ_sum_size() floats. That is 4 bytes
/// for every element of dQ, and traffic that grows with the number of K/V tiles; and since the additions come in
/// any order, two runs differ in the last bits of dQ.
///
/// Source: Dao 2023, Algorithm 2 and section 3.2 ("we use atomic adds to communicate between different thread blocks").
template <class Element, class Gradient>
void atomic_backward(const BackwardCall<Element, Gradient>& call, float2* rows, float* dQ_sum);

/// Its sizes for d = 32, 64 and 128.
inline constexpr GradientTiles atomic_built[] = {{64, 32, 2}, {128, 32, 4}, {128, 64, 8}};

/// dQ's elements, with Nq rounded up to 16.
inline std::int64_t dQ_sum_size(const workbook::Shape& shape) {
  return shape.B * shape.H * ((shape.Nq + 15) / 16 * 16) * shape.d;
}

}  // namespace ch06
