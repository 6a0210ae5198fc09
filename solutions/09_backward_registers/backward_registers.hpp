// Chapter 9, the backward pass in registers: dQ, dK and dV with five matmuls. P and dS are computed in the registers in
// which the next matmul needs them.
//
// What changes from chapter 6: S and dP are computed transposed, with one row per key. Rounded, the accumulators of Pᵀ
// and dSᵀ are the left operands of dV += Pᵀ dO and dK += dSᵀ Q, so neither passes through shared memory. Only
// dQ += dS K sums over the keys, which are in different warps and thread blocks. For it, dSᵀ is stored once by stmatrix
// and loaded transposed, and each K/V tile adds its contribution to dQ_sum in device memory.
// What it costs: dQ_sum takes 4 bytes per element of dQ. The order of the atomic additions varies, so the last bits of
// dQ differ between runs. In deterministic mode semaphores fix the order, and warps wait for each other.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2, and section 3.2; PTX ISA, sections "Matrix fragments
// for mma.m16n8k16", "ldmatrix", "stmatrix" and "bar".
// Test it: ./workbook test 9
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch09 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// The sizes that kernels are built for: Bc, Br and the warps of a thread block. The first that fits is used. Shared
/// memory: the first takes 65 KB for d = 32 and 97 KB for d = 64; for d = 128 the second takes 177 KB and the third
/// 77 KB. The last is the smallest possible, for tests.
inline constexpr GradientTiles built[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}, {32, 32, 1}};
/// The sizes of the deterministic kernels, and of the kernels for bf16.
inline constexpr GradientTiles built_deterministic[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}};

/// Device memory that the kernels need beside the tensors. The rows of each head are padded to a multiple of 64.
struct Scratch {
  float2* row_stats;  ///< padded_rows(): LSE and D of each query, see prepare_rows.hpp
  float* dQ_sum;      ///< padded_rows()·d: dQ in fp32, without the scale
  int* semaphores;    ///< semaphore_count(), or nullptr: additions in any order
};
inline std::size_t padded_rows(const workbook::Shape& shape) {
  return std::size_t(shape.B * shape.H * ((shape.Nq + 63) / 64) * 64);
}
inline std::size_t dQ_sum_size(const workbook::Shape& shape) {
  return padded_rows(shape) * std::size_t(shape.d);
}
/// The ticket counter, then one counter per warp and Q tile.
inline std::size_t semaphore_count(const workbook::Shape& shape) {
  return 1 + padded_rows(shape) / 4;
}

/// dQ, dK and dV for every head, in three kernels. d is 32, 64 or 128. dlse (B, H, Nq): the gradient of the LSE if the
/// loss depends on it, else nullptr. Element is half or __nv_bfloat16. std::invalid_argument for sizes that are not
/// built.
template <class Element>
void backward(const BackwardCall<Element>& call, const float* dlse, const Scratch& scratch, const GradientTiles& tiles);

/// Bytes of shared memory per thread block; 0: there is no kernel of these sizes.
template <class Element>
std::size_t shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch09
