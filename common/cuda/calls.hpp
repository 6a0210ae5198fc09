// The arguments of every kernel chapter's stages: tensors in device memory and tile sizes. Includes no CUDA header.
#pragma once

#include "common/attention/cache_strides.hpp"

namespace workbook::cuda {

/// Sizes of a forward kernel: Br queries per Q tile, Bc keys per K/V tile, and the warps of a thread block.
struct Tiles {
  int Br = 0, Bc = 0, warps = 0;
  friend bool operator==(const Tiles&, const Tiles&) = default;
};

/// Sizes of a backward kernel: Bc keys per K/V tile, which a thread block owns, Br queries per Q tile, over which it
/// iterates, and the warps of a thread block.
struct GradientTiles {
  int Bc = 0, Br = 0, warps = 0;
  friend bool operator==(const GradientTiles&, const GradientTiles&) = default;
};

/// A forward pass with its tensors in device memory, as workbook::Shape describes them, 16-byte aligned. Element is
/// half or __nv_bfloat16.
template <class Element>
struct ForwardCall : Setting {
  const Element *Q, *K, *V;
  Element* O;
  float* lse;
  /// Arrays of the mask, or nullptr: sinks (H), in natural units; the first row of each packed sequence, then the end
  /// of the last one.
  const float* sink = nullptr;
  const std::int32_t* starts = nullptr;
  /// Arrays of a KV cache, or nullptr: the number of keys of each request, (B); the page table, (B, ⌈Nk / page_size⌉).
  const std::int32_t* cache_lengths = nullptr;
  const std::int32_t* pages = nullptr;
  CacheStrides cache = {};  ///< where K and V are
};

/// A backward pass, likewise. Gradient is Element or float.
template <class Element, class Gradient = Element>
struct BackwardCall : Setting {
  const Element *Q, *K, *V, *O, *dO;
  const float* lse;        ///< (B, H, Nq), of the forward pass: natural logarithm, -inf in fully masked rows
  Gradient *dQ, *dK, *dV;  ///< shaped like Q, K and V
  /// As in ForwardCall; the gradient of the sinks, (H), or nullptr.
  const float* sink = nullptr;
  const std::int32_t* starts = nullptr;
  float* dsink = nullptr;
  const float* dlse = nullptr;  ///< the gradient of the LSE, (B, H, Nq), or nullptr: 0
};

}  // namespace workbook::cuda
