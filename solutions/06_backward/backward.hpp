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

#include "common/attention/shape.hpp"
#include "common/cuda/kernel.hpp"

namespace ch06 {

/// The warps of a block, and of a team that has 32 rows together (fragments.hpp). A block owns 32 warps / team rows,
/// and they meet the others in tiles of 32 team. Built are (warps, team) = (8, 2), (4, 2), (4, 1) for d <= 64, and
/// (1, 1) for d = 32.
/// 0: (4, 1) for d <= 64, (8, 2) for d = 128.
struct Tiles {
  int warps = 0, team = 0;
};

/// Tensors in device memory, as workbook::Shape describes them, 16-byte aligned. Element is half; chapter 7 makes it
/// bf16. Gradient is Element or float.
template <class Element, class Gradient = Element>
struct DeviceCall {
  workbook::Shape shape;
  float scale;  ///< multiplies QKᵀ, of any sign; usually 1/√d
  bool causal;
  const Element *Q, *K, *V, *O, *dO;
  const float* lse;        ///< (B, H, Nq), of the forward pass: natural logarithm, -inf in fully masked rows
  Gradient *dQ, *dK, *dV;  ///< as Q, K and V
  float2* rows;            ///< scratch, (B, H, Nq): what each query brings, its LSE in units of log2 and its D
};

/// Fills `rows`: LSE·log2(e), or +inf for a fully masked row, and D = rowsum(dO∘O). backward() calls it.
template <class Element, class Gradient>
void prepare_rows(const DeviceCall<Element, Gradient>& call);

/// dQ, dK and dV for every head, in three kernels. d is 32, 64 or 128. std::invalid_argument for a call that it does
/// not take.
template <class Element, class Gradient>
void backward(const DeviceCall<Element, Gradient>& call, Tiles tiles = {});

}  // namespace ch06
