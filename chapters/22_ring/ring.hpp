// Chapter 22, the ring: attention over several GPUs. Each rank holds a part of the queries and of the keys. K and V
// travel from rank to rank, and arrive while the ones before them are being used. O and the LSE, causal or not, with
// grouped queries.
//
// What changes: a rank sees its keys in several launches. Chapter 8's kernel starts from O, m and l in device memory
// and ends there, so no other kernel merges partial results, and O is rounded once. With the causal mask each rank
// holds an early and a late chunk of the sequence, and so all ranks have equally much to do in every step.
// What it costs: a step reads and writes O, m and l, at most 8·(d + 2) bytes per head and row of Q; and a rank needs
// memory for a second K/V shard.
//
// Source: Liu, Zaharia and Abbeel 2023 (Ring Attention); Zhu 2024 (ring-flash-attention), the zigzag order.
#pragma once

#include <cstddef>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch22 {

using workbook::cuda::BackwardCall, workbook::cuda::ForwardCall, workbook::cuda::GradientTiles, workbook::cuda::Tiles;

/// Chapter 8's tile sizes and warps per block.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

/// O = softmax(scale·QKᵀ) V and the LSE for every head, by `ranks` ranks. The tensors are on device 0; each rank copies
/// its part to its own device, and its O and LSE back. d is 64 or 128. Throws std::invalid_argument for sizes that are
/// not built.
template <class Element>
void ring_attention(const ForwardCall<Element>& call, const Tiles& tiles, int ranks);

/// Bytes of shared memory per thread block.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

/// Chapter 9's tile sizes: the first for d = 64, the second for d = 128.
inline constexpr GradientTiles built_backward[] = {{128, 64, 4}, {128, 64, 8}};

/// dQ, dK and dV, likewise. dQ stays with its rank; the sums of dK and dV travel with K and V, in fp32, and once more
/// to the rank that they belong to. Nq = Nk.
template <class Element>
void ring_backward(const BackwardCall<Element>& call, const GradientTiles& tiles, int ranks);

/// Bytes of shared memory per thread block; 0: no kernel has these tiles for this d.
std::size_t backward_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch22
