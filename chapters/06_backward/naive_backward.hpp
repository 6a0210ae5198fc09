// Chapter 6, the naive backward: dQ, dK and dV by the formulas, on the CPU in float, with P and dS written out in full.
//
// The kernels of this chapter are compared with this stage. What it costs: P and dS hold Nq·Nk numbers each per head. A
// framework that keeps P from the forward pass pays the same for P.
//
// Source: Dao 2023, section 3.1.2 (the formulas); Dao et al. 2022, appendix B.2 (D = rowsum(dO∘O)).
// Test it: ./workbook test 6
#pragma once

#include <span>

#include "common/attention/setting.hpp"

namespace ch06 {

using workbook::Matrix;

/// One head: the inputs of its backward pass, the intermediate matrices P and dS, and the gradients.
struct Head {
  Matrix<const float> Q, K, V;  ///< (Nq, d), (Nk, d), (Nk, d)
  Matrix<const float> O, dO;    ///< (Nq, d)
  std::span<const float> lse;   ///< (Nq); -inf in a fully masked row
  Matrix<float> P, dS;          ///< (Nq, Nk)
  Matrix<float> dQ, dK, dV;     ///< (Nq, d), (Nk, d), (Nk, d)
  float scale;
  bool causal;
};

/// Exercise 6.1. P and dS, then dV = PᵀdO, dQ = scale·dS·K and dK = scale·dSᵀ·Q. P is 0 where query i does not attend
/// to key j, so a fully masked row contributes to no gradient.
void head_gradients(const Head& head);

/// The gradients of every head (given). Stores P and dS of all heads, (B, H, Nq, Nk) each. Throws
/// workbook::cuda::Refused before it allocates anything if they do not fit in the free memory.
void naive_backward(const workbook::GradientCall& call);

}  // namespace ch06
