// Chapter 7, the blank page: attention with a kernel of your own design. The tests check its results and its costs.
//
// Test it: ./workbook test 7.7
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch07 {

/// Exercise 7.7. O = softmax(scale·QKᵀ) V and the LSE for every head, without a mask, for d = 64; any Nq, Nk >= 1. The
/// shapes are those of ForwardCall. It allocates no device memory. Traffic: Q is read once, O and the LSE are written
/// once, K and V are read at most once per 64 queries. Barriers: per 64 queries, at most two per 64 keys, plus two.
void blank_page(const workbook::cuda::ForwardCall<half>& call);

}  // namespace ch07
