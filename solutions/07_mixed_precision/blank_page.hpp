// Chapter 7, the blank page: attention by a kernel of your own. No stub says how; the tests hold it to its costs.
//
// Test it: ./workbook test 7.7
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch07 {

/// Exercise 7.7. O = softmax(scale·QKᵀ) V and the LSE for every head, without a mask, for d = 64; any Nq, Nk >= 1. The
/// shapes are those of ForwardCall. No memory on the device beside it. Bytes: Q is read once, O and the LSE are written
/// once, K and V are read once for 64 queries at most. Barriers: for 64 queries at most two for 64 keys, and two more.
void blank_page(const workbook::cuda::ForwardCall<half>& call);

}  // namespace ch07
