// Chapter 6, the recomputing backward: dQ, dK and dV from Q, K, V, O, dO and the LSE, in memory that grows like N.
//
// What changes: the forward pass keeps nothing but O and one number a row, the LSE. P = exp(S - LSE) is computed again,
// tile by tile, where it is needed. Three kernels: one number D = rowsum(dO∘O) for each query; dK and dV, one block for
// each tile of keys, while the queries pass by; dQ, one block for each tile of queries, while the keys pass by. Each
// gradient has one writer, so that the result is the same in every run.
// What it costs: S and dP are computed in both, seven matrix products in place of five. atomic_backward.hpp has five.
//
// Source: Dao 2023, section 3.1.2, Algorithm 2; Dao et al. 2022, appendix B.2 (D = rowsum(dO∘O)).
// Test it: ./workbook test 6
#pragma once

#include <cstddef>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch06 {

using workbook::cuda::BackwardCall, workbook::cuda::GradientTiles;

/// The rows that a block owns, those of a tile that passes by, and the warps of a block that there are kernels for. A
/// team of passing / 32 warps has 32 of the rows (fragments.hpp). The first is for d <= 64, the last for d = 32 only.
inline constexpr GradientTiles built[] = {{128, 32, 4}, {128, 64, 8}, {64, 64, 4}, {32, 32, 1}};

/// Fills `rows`, scratch (B, H, Nq), with what each query brings: LSE·log2(e), or +inf for a fully masked row, and
/// D = rowsum(dO∘O). backward() calls it.
template <class Element, class Gradient>
void prepare_rows(const BackwardCall<Element, Gradient>& call, float2* rows);

/// dQ, dK and dV for every head, in three kernels. d is 32, 64 or 128. Element is half; chapter 7 makes it bf16.
/// Gradient is Element or float. std::invalid_argument for sizes that are not built.
template <class Element, class Gradient>
void backward(const BackwardCall<Element, Gradient>& call, float2* rows, const GradientTiles& tiles);

/// Bytes of shared memory that a block takes; 0: there is no kernel of these sizes.
template <class Element>
std::size_t shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch06
