// Chapter 13, the backward pass by wgmma and TMA: five products by groups of four warps, of which none waits for a
// product that something else could run beside; for Hopper alone (sm_90a).
//
// What changes against chapter 9: a thread block still has a K/V tile of keys and meets the Q tiles of queries
// that see them, and Sᵀ and dPᵀ are still computed transposed. But now, as in chapter 11, the work is divided.
// - One thread, the producer, brings Q, dO and what each query brings, LSE and D, by TMA.
// - Two consumers, groups of four warps, have 64 of the 128 keys each. Pᵀ and dSᵀ are operands of dV += Pᵀ dO and
//   dK += dSᵀ Q in the registers where they were formed; dK and dV stay in registers from beginning to end.
// - Only dQ = dS K sums over all keys. For it dS goes through shared memory, and each consumer forms half of dQ.
// - One warp, the writer, has TMA add dQ to a sum in device memory: no thread adds anything.
// What it costs: the sum, 4 bytes for each element of dQ, as in chapter 9, and its additions come in any order. Where
// dQ has to be the same in every run, the writers of the K/V tiles take semaphores.
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

/// The keys of a K/V tile, the queries of a Q tile, and the warps of a thread block: the first for d = 64, the
/// second for d = 128. Four warps are the producer's and the writer's, four are a consumer.
inline constexpr GradientTiles built[] = {{128, 128, 12}, {128, 64, 12}};
/// The steps to the chapter's kernel, each of which adds one thing to the one before:
/// 1 wgmma, TMA, a producer and a writer; one place for Q and one for dO;
/// 2 two places each, a ring of two stages;
/// 3 products run beside the exponentials, beside dS and beside each other;
/// 4 for d = 128, dV begins as soon as half of P is there.
inline constexpr int last_step = 4;

/// Whether there is a kernel for them.
constexpr bool is_built(int d, const GradientTiles& tiles) {
  return (d == 64 && tiles == built[0]) || (d == 128 && tiles == built[1]);
}

/// The rows of a head in the arrays below: Nq, filled up to whole Q tiles of any size.
__host__ __device__ __forceinline__ int padded(int Nq) {
  return (Nq + 127) / 128 * 128;
}
/// What the kernels need beside the tensors, in device memory.
struct Scratch {
  float* lse;       ///< padded_rows(): LSE·log2(e) of each query
  float* D;         ///< padded_rows(): rowsum(dO∘O) - dLSE of each query
  float* dQ_sum;    ///< padded_rows()·d: the sums of dQ
  int* semaphores;  ///< semaphore_count(), or nullptr: the additions come in any order
};
inline std::size_t padded_rows(const workbook::Shape& shape) {
  return std::size_t(shape.B * shape.H * padded(int(shape.Nq)));
}
inline std::size_t dQ_sum_size(const workbook::Shape& shape) {
  return padded_rows(shape) * std::size_t(shape.d);
}
/// One for each Q tile, and one before them.
inline std::size_t semaphore_count(const workbook::Shape& shape) {
  return 1 + padded_rows(shape) / 64;
}

/// dQ, dK and dV for every head, in three kernels. dlse (B, H, Nq): the gradient of the LSE, where the loss depends on
/// it too; nullptr: it does not. Element is half or, for the last step, __nv_bfloat16. std::invalid_argument for what
/// is not built.
template <class Element>
void backward(const BackwardCall<Element>& call, const float* dlse, const Scratch& scratch, const GradientTiles& tiles,
              int step);

/// Bytes of shared memory that a thread block takes; 0: there is no kernel of these sizes.
template <class Element>
std::size_t shared_bytes(int d, const GradientTiles& tiles, int step);

}  // namespace ch13
