// Chapter 6, backward with recomputation: dQ, dK and dV from Q, K, V, O, dO and the LSE. Memory grows like N.
//
// What changes: P is recomputed tile by tile instead of stored as in the naive backward. There are three kernels:
// - prepare: D = rowsum(dO∘O) of each query.
// - dK and dV: one thread block per K/V tile, which loops over the Q tiles.
// - dQ: one thread block per Q tile, which loops over the K/V tiles.
// Each gradient has one writer, so the result is the same in every run.
// What it costs: the last two kernels both compute S and dP: seven matmuls instead of five. atomic_backward() has five.
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

/// The sizes that kernels are compiled for: rows of the resident tile, rows of a streamed tile, warps. (The fields are
/// called Bc and Br, which are these sizes in the dK and dV kernel; in the dQ kernel the roles are exchanged.) The
/// first entry that fits is used. Shared memory for d = 64: 76 KiB for the first, 48 KiB for the fourth. For d = 128:
/// 174 KiB for the second, 122 KiB for the third, 96 KiB for the fifth. The last entry is the smallest possible, for a
/// large number of heads on the simulator and for a step of `bench --steps`.
inline constexpr GradientTiles built[] = {{128, 32, 4}, {128, 64, 8}, {64, 64, 4},
                                          {64, 32, 2},  {32, 64, 2},  {32, 32, 1}};

/// Fills `rows`, scratch (B, H, Nq), with LSE and D of each query: LSE·log2(e), or +inf for a fully masked row, and
/// D = rowsum(dO∘O). The functions below call it. Like them it is instantiated for half, and in chapter 7 for bf16,
/// with gradients of the same type or in float.
template <class Element, class Gradient>
void prepare_rows(const BackwardCall<Element, Gradient>& call, float2* rows);

/// dQ, dK and dV for every head, in three kernels. d is 32, 64 or 128. Throws std::invalid_argument for sizes that are
/// not in `built`.
template <class Element>
void backward(const BackwardCall<Element>& call, float2* rows, const GradientTiles& tiles);

/// The same with gradients in float, for tests. Uses the smallest tiles for each d, on every device.
template <class Element>
void backward_to_float(const BackwardCall<Element, float>& call, float2* rows);

/// Bytes of shared memory per thread block; 0 if there is no kernel of these sizes.
template <class Element>
std::size_t shared_bytes(int d, const GradientTiles& tiles);

/// The same gradients with five matmuls, as in FlashAttention-2: the dK and dV kernel also computes dQ += dS K. Every
/// K/V tile contributes to each dQ, and the thread blocks run concurrently. So they add to dQ_sum in device memory,
/// scratch of dQ_sum_size() floats, by atomic additions in fp32. This takes 4 bytes per element of dQ and traffic that
/// grows with the number of K/V tiles. The order of the additions varies, so two runs differ in the last bits of dQ.
///
/// Source: Dao 2023, Algorithm 2 and section 3.2 ("we use atomic adds to communicate between different thread blocks").
template <class Element, class Gradient>
void atomic_backward(const BackwardCall<Element, Gradient>& call, float2* rows, float* dQ_sum);

/// The atomic variant's sizes for d = 32, 64 and 128.
inline constexpr GradientTiles atomic_built[] = {{64, 32, 2}, {128, 32, 4}, {128, 64, 8}};

/// The number of elements of dQ with Nq rounded up to a multiple of 16.
inline std::int64_t dQ_sum_size(const workbook::Shape& shape) {
  return shape.B * shape.H * ((shape.Nq + 15) / 16 * 16) * shape.d;
}

}  // namespace ch06
