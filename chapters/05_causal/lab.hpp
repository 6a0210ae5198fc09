// Chapter 5, the lab: causal attention with one query per lane. Its output is correct, but it reads out of bounds.
//
// Trace it: ./workbook trace 5 --operation lab --causal --seq 130 --heads 2
// Test it: ./workbook test 5.6
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch05 {

/// Exercise 5.6. O = softmax(scale·QKᵀ + causal mask) V and the LSE, for d = 64; any Nq, Nk >= 1. The shapes are those
/// of ForwardCall.
void lab(const workbook::cuda::ForwardCall<half>& call);

}  // namespace ch05
