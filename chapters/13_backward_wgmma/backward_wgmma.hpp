// Chapter 13: the backward pass with wgmma and TMA, warp-specialised, for Hopper (sm_90a).
//
// What changes from chapter 9: a thread block still keeps one K/V tile and loops over the Q tiles that attend to it,
// and Sᵀ and dPᵀ are still computed transposed. Now, as in chapter 11, the warps have different roles.
// - One thread, the producer, loads Q, dO, LSE and D by TMA.
// - Two consumers, warpgroups, have 64 of the 128 keys each. Pᵀ and dSᵀ are the register operands of dV += Pᵀ dO and
//   dK += dSᵀ Q. dK and dV stay in registers for the whole loop.
// - Only dQ = dS K sums over all keys. dS therefore goes through shared memory, and each consumer computes half of dQ.
// - One warp, the writer, issues TMA reductions that add dQ to a sum in device memory.
// What it costs: 4 bytes of device memory for each element of dQ, as in chapter 9, and additions in no fixed order. In
// deterministic mode the writers of the K/V tiles add in a fixed order, kept by semaphores.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.1 and appendix B.1; Dao 2023 (FlashAttention-2), Algorithm 2;
// PTX ISA, "wgmma", "cp.reduce.async.bulk", "stmatrix", "setmaxnreg".
// Test it: ./workbook test 13
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch13 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// Bc, Br and the warps of a thread block: the first entry for d = 64, the second for d = 128. Of the three warpgroups,
/// one contains the producer and the writer, and two are the consumers.
inline constexpr GradientTiles built[] = {{128, 128, 12}, {128, 64, 12}};
/// The versions of the kernel; the last one is the chapter's. Each adds one thing to the version before:
/// 1 wgmma, TMA, a producer and a writer; one stage of Q and dO;
/// 2 a second stage;
/// 3 matmuls overlap with the exponentials, with dS and with each other;
/// 4 for d = 128, dV starts when half of P is ready.
inline constexpr int last_step = 4;

/// Whether a kernel is built for these sizes.
constexpr bool is_built(int d, const GradientTiles& tiles) {
  return (d == 64 && tiles == built[0]) || (d == 128 && tiles == built[1]);
}

/// The rows of a head in the arrays below: Nq, padded to a multiple of 128, so to whole Q tiles of either size.
__host__ __device__ __forceinline__ int padded(int Nq) {
  return (Nq + 127) / 128 * 128;
}
/// Additional device memory of the kernels.
struct Scratch {
  float* lse;       ///< padded_rows(): LSE·log2(e) of each query
  float* D;         ///< padded_rows(): rowsum(dO∘O) - dLSE of each query
  float* dQ_sum;    ///< padded_rows()·d: the sums of dQ
  int* semaphores;  ///< semaphore_count(); nullptr: not deterministic
};
inline std::size_t padded_rows(const workbook::Shape& shape) {
  return std::size_t(shape.B * shape.H * padded(int(shape.Nq)));
}
inline std::size_t dQ_sum_size(const workbook::Shape& shape) {
  return padded_rows(shape) * std::size_t(shape.d);
}
/// The ticket counter, then one semaphore per 64 padded rows: enough for one per Q tile.
inline std::size_t semaphore_count(const workbook::Shape& shape) {
  return 1 + padded_rows(shape) / 64;
}

/// Computes dQ, dK and dV of every head, in three kernels. dlse (B, H, Nq) is the gradient of the LSE; nullptr if the
/// loss does not depend on the LSE. Element is half or, for the last version, __nv_bfloat16. Throws
/// std::invalid_argument if no kernel is built for d and `tiles`.
template <class Element>
void backward(const BackwardCall<Element>& call, const float* dlse, const Scratch& scratch, const GradientTiles& tiles,
              int step);

/// Bytes of shared memory of a thread block; 0 if no kernel is built for these sizes.
template <class Element>
std::size_t shared_bytes(int d, const GradientTiles& tiles, int step);

}  // namespace ch13
