// Chapter 6, the naive backward: dQ, dK and dV by the formulas, on the CPU in float, with P and dS written out in full.
//
// This is the stage that the kernels of this chapter are compared with. What it costs: P and dS hold Nq·Nk numbers a
// head each. That is what a framework pays which keeps P from the forward pass.
//
// Source: Dao 2023, section 3.1.2 (the formulas); Dao et al. 2022, appendix B.2 (D = rowsum(dO∘O)).
// Test it: ./workbook test 6
#pragma once

#include <span>

#include "common/attention/setting.hpp"

namespace ch06 {

using workbook::Matrix;

/// One head: the inputs of its backward pass, what is kept on the way, and the gradients.
struct Head {
  Matrix<const float> Q, K, V;  ///< (Nq, d), (Nk, d), (Nk, d)
  Matrix<const float> O, dO;    ///< (Nq, d)
  std::span<const float> lse;   ///< (Nq); -inf in a fully masked row
  Matrix<float> P, dS;          ///< (Nq, Nk)
  Matrix<float> dQ, dK, dV;     ///< (Nq, d), (Nk, d), (Nk, d)
  float scale;
  bool causal;
};

/// Exercise 6.1. P and dS, then dV = PᵀdO, dQ = scale·dS·K and dK = scale·dSᵀ·Q. P is 0 where query i does not see key
/// j, so that a fully masked row has no part in any gradient.
void head_gradients(const Head& head);

/// The gradients of every head (given). Holds P and dS of all heads, (B, H, Nq, Nk) each. Throws
/// workbook::cuda::Refused, before it allocates anything, when they would not fit the memory that is free.
void naive_backward(const workbook::GradientCall& call);

}  // namespace ch06
