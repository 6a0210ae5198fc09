// Chapter 4, the lab: a small kernel with one row per lane. Its results are correct, but it has bank conflicts.
//
// Trace it: ./workbook trace 4 --operation lab --seq 128 --heads 1 --lines
// Test it: ./workbook test 4.10
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch04 {

/// Exercise 4.10. O = softmax(scale·QKᵀ) V and the LSE, for d = 64, without a mask; any Nq, Nk >= 1. The shapes are
/// those of ForwardCall.
void lab(const workbook::cuda::ForwardCall<half>& call);

}  // namespace ch04
