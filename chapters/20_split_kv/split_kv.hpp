// Chapter 20, split-KV decoding: attention of a few queries, with the keys divided among thread blocks. O and the LSE,
// causal or not, with grouped queries.
//
// What changes: in decoding a sequence has one query, or a few, and thousands of keys. With one thread block per K/V
// head, most multiprocessors have no work. So the keys of all heads form one sequence of units, and every thread block
// takes an equal range of it. A head that several blocks share has one partial O and LSE per block; the last of these
// blocks to finish merges them as in chapter 2. K and V are used once, so they go from device memory straight to
// registers, in the layout of the MMA operands. The scores are computed as Sᵀ = K Qᵀ: the keys are the 16 rows of an
// operand, and the 8 columns of the other are the queries of a group.
//
// Source: Dao et al. 2023 (Flash-Decoding); Milakov and Gimelshein 2018, section 3 (merging).
// Test it: ./workbook test 20
#pragma once

#include <cstddef>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch20 {

using workbook::cuda::ForwardCall, workbook::cuda::Tiles;

/// The tile sizes and the number of warps that kernels are built for. A warp computes 16 keys at a time for up to Br
/// rows of Q: Bc = 16·warps.
inline constexpr Tiles built[] = {{16, 128, 8}, {16, 32, 2}};

/// The partial results of a call: one per thread block and head that it shares with other blocks.
struct Partial {
  float* O;            // (2·blocks, Br, d)
  float* lse;          // (2·blocks, Br), in units of log2
  unsigned* finished;  // (heads of the cut): the blocks that have written their result of a head; 0 before a launch
};

/// O = softmax(scale·QKᵀ) V and the LSE for every head of Q; head h reads head h / (H / Hkv) of K and V. `splits`: the
/// thread blocks per head of K and V; 0: cut_of() chooses. d is 64 or 128. A fully masked row gives O = 0 and an LSE of
/// -inf. Element is half or __nv_bfloat16. Throws std::invalid_argument for sizes that are not built.
template <class Element>
void split_kv(const ForwardCall<Element>& call, const Partial& partial, const Tiles& tiles, int splits,
              int multiprocessors);

/// Bytes of shared memory per thread block.
template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles);

}  // namespace ch20
