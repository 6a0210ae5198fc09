// Chapter 14, grouped queries: heads of Q that share a head of K and V. O and the LSE in one launch, causal or not.
//
// What changes: H heads of Q go with Hkv of K and V, and G = H / Hkv neighbouring heads of Q, a group, read the same K
// and V. A kernel that gives every head blocks of its own is right with one more line, but its blocks read K and V G
// times. So the rows of a tile are taken from all heads of a group: row r is query r / G of head r % G. Then K and V
// are read once for G·Nq rows where they were read once for Nq. With one query, as in decoding, that is G times fewer
// bytes. What it costs: a tile's rows of Q and O are no longer one piece of memory, and neighbouring rows of the mask
// are not neighbouring queries.
//
// Source: Shazeer 2019 (one head of K and V for all), Ainslie et al. 2023 (GQA); FlashAttention-3's PackGQA.
// Test it: ./workbook test 14
#pragma once

#include <cstddef>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch14 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The sizes of the tiles and the warps of a block that there are kernels for; a warp has 32 rows: Br = 32·warps.
inline constexpr Tiles built[] = {{128, 64, 4}, {32, 32, 1}};

// In units of log2, m may stay behind a row's maximum by this much, as in chapter 8.
inline constexpr float slack = 8;

/// How rows are put together: `when_it_pays` as the chapter's rule says (exercise 14.6).
enum class Packing { when_it_pays, never, always };

/// O = softmax(scale·QKᵀ) V and the LSE for every head of Q; head h reads head h / (H / Hkv) of K and V. No extra
/// memory. d is 64 or 128. Rows that see no key give O = 0 and an LSE of -inf. Element is half or __nv_bfloat16.
/// std::invalid_argument for sizes that are not built.
template <class Element>
void grouped(const ForwardCall<Element>& call, const Tiles& tiles, Packing packing = Packing::when_it_pays);

/// Bytes of shared memory that a block takes.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch14
