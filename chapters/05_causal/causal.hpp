// Chapter 5, causal: a query sees no key behind its own position, and the kernel does no work for those. O and the LSE
// in one launch.
//
// What changes: a tile of queries goes through the tiles of keys up to the diagonal and no further. Only tiles that the
// diagonal crosses are masked. Since the work of a block now depends on its rows, the longest blocks start first.
// What it costs: in the tiles that are crossed, half of the work is for nothing.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1 ("Causal masking").
// Test it: ./workbook test 5
#pragma once

#include "common/attention/shape.hpp"
#include "common/cuda/kernel.hpp"

namespace ch05 {

/// The sizes of the tiles and the warps of a block; a warp has 32 rows of Q: Br = 32·warps. Built are (Br, Bc, warps) =
/// (128, 64, 4), (128, 32, 4), (64, 64, 2) and (32, 32, 1).
struct Tiles {
  int Br = 128, Bc = 64, warps = 4;
};

/// Tensors in device memory, as workbook::Shape describes them, 16-byte aligned. Element is half; chapter 7 makes it
/// bf16.
template <class Element>
struct DeviceCall {
  workbook::Shape shape;
  float scale;  ///< multiplies QKᵀ, usually 1/√d
  bool causal;  ///< query i sees the keys j <= i + (Nk - Nq); otherwise all
  const Element *Q, *K, *V;
  Element* O;
  float* lse;
};

/// O = softmax(scale·QKᵀ) V and the LSE for every head, in one kernel; no extra memory. d is 32, 64 or 128. Rows that
/// see no key give O = 0 and an LSE of -inf. std::invalid_argument for a call that it does not take.
template <class Element>
void causal(const DeviceCall<Element>& call, Tiles tiles = {});

}  // namespace ch05
