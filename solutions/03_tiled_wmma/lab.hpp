// Chapter 3, the lab: attention with one thread block per query, with a bug that no output shows.
//
// See it: ./workbook trace 3 --operation lab --seq 130 --heads 1
// Test it: ./workbook test 3.13
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch03 {

/// Exercise 3.13. O = softmax(scale·QKᵀ) V and the LSE, for d = 64, without a mask; any Nq, Nk >= 1. Shapes: see
/// ForwardCall.
void lab(const workbook::cuda::ForwardCall<half>& call);

}  // namespace ch03
