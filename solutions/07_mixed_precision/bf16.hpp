// Chapter 7, the bf16 path: the kernels of chapters 5 and 6 on bf16 in place of fp16.
//
// What changes: the element type, and with it how a float is rounded to an element and read back. Not one line of the
// kernels: they are templates, and bf16.cu compiles them once more.
// What it costs: P and dS are rounded at 2^-8 in place of 2^-11. What it gains: nothing overflows or underflows.
//
// Source: Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training", section 3.
// Test it: ./workbook test 7.2
#pragma once

#include <cstdint>

#include "common/attention/shape.hpp"
#include "common/cuda/kernel.hpp"

namespace ch07 {

/// Exercise 7.2. y (n) = x (n), rounded to nearest even, and the other way round. Any n >= 0; arrays start at multiples
/// of 16 bytes. Device memory.
void cast(const float* x, __nv_bfloat16* y, std::int64_t n);
void cast(const __nv_bfloat16* x, float* y, std::int64_t n);

/// Tensors in device memory, as workbook::Shape describes them, 16-byte aligned.
struct ForwardCall {
  workbook::Shape shape;
  float scale;  ///< multiplies QKᵀ, usually 1/√d
  bool causal;
  const __nv_bfloat16 *Q, *K, *V;
  __nv_bfloat16* O;
  float* lse;
  int Br = 128, Bc = 64;  ///< (128, 64), (128, 32), (64, 64) or (32, 32): chapter 5's tiles
};
/// O and the LSE, by chapter 5's kernel. d is 32, 64 or 128. std::invalid_argument for a call that it does not take.
void forward(const ForwardCall& call);

struct BackwardCall {
  workbook::Shape shape;
  float scale;
  bool causal;
  const __nv_bfloat16 *Q, *K, *V, *O, *dO;
  const float* lse;             ///< (B, H, Nq), of the forward pass
  __nv_bfloat16 *dQ, *dK, *dV;  ///< as Q, K and V
  float2* rows;                 ///< scratch, (B, H, Nq)
  int warps = 0, team = 0;      ///< 0: chapter 6's choice
};
/// dQ, dK and dV, by chapter 6's kernels; otherwise as forward().
void backward(const BackwardCall& call);

}  // namespace ch07
