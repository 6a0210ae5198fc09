// Chapter 6, the lab: all three gradients, one warp per row; right as long as no score is far from 0.
//
// See it: ./workbook trace 6 --operation lab --seq 32 --heads 1 --scale 4
// Test it: ./workbook test 6.9
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch06 {

/// Exercise 6.9. dQ, dK and dV for d = 64, without a mask; any Nq, Nk >= 1. The shapes are those of BackwardCall.
void lab(const workbook::cuda::BackwardCall<half>& call);

}  // namespace ch06
