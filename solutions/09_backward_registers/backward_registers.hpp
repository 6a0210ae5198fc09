// Chapter 9, the backward pass in registers: dQ, dK and dV with five matrix products, P and dS formed where the next
// product wants them.
//
// What changes against chapter 6: S and dP are computed transposed, a row for each key. What a lane then holds of Pᵀ
// and dSᵀ is, rounded, what the products dV += Pᵀ dO and dK += dSᵀ Q take as their left operand; neither goes through
// shared memory for them. Only dQ += dS K sums over the keys, that is, over warps and thread blocks. For it dSᵀ is
// stored once, by stmatrix, and read transposed; each K/V tile adds its part of dQ to a sum in device memory.
// What it costs: that sum is 4 bytes for each element of dQ. The atomic additions to it come in any order, so two runs
// differ in the last bits of dQ. Where they have to be equal, the K/V tiles take semaphores, and wait for them.
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

/// The keys of a K/V tile, the queries of a Q tile, and the warps of a thread block that there are kernels for;
/// the first that fits is taken. Shared memory: the first 65 KB for d = 32 and 97 KB for d = 64; for d = 128 the second
/// 177 KB and the third 77 KB. The last is as small as can be, for tests.
inline constexpr GradientTiles built[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}, {32, 32, 1}};
/// Those that there are kernels with semaphores for, and kernels for bf16.
inline constexpr GradientTiles built_deterministic[] = {{128, 64, 4}, {128, 64, 8}, {64, 32, 4}};

/// What the kernels need beside the tensors, in device memory. Rows of all heads are filled up to a multiple of 64.
struct Scratch {
  float2* rows;     ///< padded_rows(): what each query brings, see prepare_rows.hpp
  float* dQ_sum;    ///< padded_rows()·d: the sums of dQ
  int* semaphores;  ///< semaphore_count(), or nullptr: the additions come in any order
};
inline std::size_t padded_rows(const workbook::Shape& shape) {
  return std::size_t(shape.B * shape.H * ((shape.Nq + 63) / 64) * 64);
}
inline std::size_t dQ_sum_size(const workbook::Shape& shape) {
  return padded_rows(shape) * std::size_t(shape.d);
}
/// One for each warp's part of each Q tile, and one before them.
inline std::size_t semaphore_count(const workbook::Shape& shape) {
  return 1 + padded_rows(shape) / 4;
}

/// dQ, dK and dV for every head, in three kernels. d is 32, 64 or 128. dlse (B, H, Nq): the gradient of the LSE, where
/// the loss depends on it too; nullptr: it does not. Element is half or __nv_bfloat16. std::invalid_argument for sizes
/// that are not built.
template <class Element>
void backward(const BackwardCall<Element>& call, const float* dlse, const Scratch& scratch, const GradientTiles& tiles);

/// Bytes of shared memory that a thread block takes; 0: there is no kernel of these sizes.
template <class Element>
std::size_t shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch09
