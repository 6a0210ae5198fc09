// Chapter 7, master weights: the optimiser updates fp32 weights; the network computes with an fp16 copy.
//
// Near 1, fp16 numbers are about 0.001 apart. An update of 0.0001 is less than half of that: added in fp16 it is
// rounded away every time. In fp32 the updates accumulate, and now and then the fp16 copy moves to the next number.
//
// Costs: 12 bytes read and 10 written per weight, in one kernel. The kernel reads the flag that exercise 7.5 sets if a
// gradient was infinite or NaN, so the CPU need not wait for it before it launches the update.
//
// Source: Micikevicius et al. 2017, "Mixed Precision Training", section 3.1; PyTorch, torch.optim.SGD (momentum) and
// the argument found_inf of its fused optimisers.
// Test it: ./workbook test 7.6
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch07 {

/// Exercise 7.6. One step of gradient descent with momentum, in fp32: momentum (n) = decay · momentum + gradients (n),
/// master (n) = master − rate · momentum. weights (n): the master weights in fp16, rounded to nearest even, for the
/// next forward pass. If *found_non_finite is not 0, nothing changes. Any n >= 0; the arrays are 16-byte aligned. All
/// pointers are to device memory.
void update_weights(float* master, float* momentum, half* weights, const float* gradients, std::int64_t n, float rate,
                    float decay, const int* found_non_finite);

}  // namespace ch07
