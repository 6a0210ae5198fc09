// Chapter 14, grouped-query attention: heads of Q that share a head of K and V. O and the LSE in one launch, causal or
// not.
//
// What changes: there are H heads of Q and Hkv heads of K and V. G = H / Hkv adjacent heads of Q, a group, read the
// same K and V. If every head of Q has its own thread blocks, one more line makes the result correct, but K and V are
// read G times. So a tile packs rows from all heads of a group: row r is query r / G of head r % G. Then K and V are
// read once per tile of packed rows. With one query, as in decoding, that is G times fewer bytes. What it costs: a
// tile's rows of Q and O are not contiguous in memory, and adjacent rows are not adjacent queries of the mask.
//
// Source: Shazeer 2019 (one head of K and V for all), Ainslie et al. 2023 (GQA); FlashAttention-3's PackGQA.
// Test it: ./workbook test 14
#pragma once

#include <cstddef>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch14 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The tile sizes and the number of warps that kernels are built for. A warp has 32 rows of Q: Br = 32·warps.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

// m may be below the row's maximum by this much, in units of log2, as in chapter 8.
inline constexpr float slack = 8;

/// Whether the heads of a group are packed; `automatic`: by the rule of exercise 14.6.
enum class Packing { automatic, never, always };

/// O = softmax(scale·QKᵀ) V and the LSE for every head of Q; head h reads head h / (H / Hkv) of K and V. No extra
/// memory. d is 64 or 128. A fully masked row gives O = 0 and an LSE of -inf. Element is half or __nv_bfloat16. Throws
/// std::invalid_argument for sizes that are not built.
template <class Element>
void grouped(const ForwardCall<Element>& call, const Tiles& tiles, Packing packing = Packing::automatic);

/// Bytes of shared memory per thread block.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch14
