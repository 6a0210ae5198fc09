// Chapter 8, the lab: a kernel with two K/V tiles in flight that is correct only if every copy is slow.
//
// See it: ./workbook trace 8 --operation lab --seq 100 --heads 1
// Test it: ./workbook test 8.8
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch08 {

/// Exercise 8.8. O = softmax(scale·QKᵀ) V and the LSE, for d = 64, without a mask; any Nq, Nk >= 1. Shapes as in
/// ForwardCall.
void lab(const workbook::cuda::ForwardCall<half>& call);

}  // namespace ch08
