// Chapter 7, master weights: the weights that are trained are fp32; the network computes with a copy in fp16.
//
// An fp16 weight of 1 has neighbours at a distance of about 0.001. An update of 0.0001 is not half of that: added in
// fp16 it changes nothing, however often it comes. In fp32 the updates add up, and from time to time one of them takes
// the fp16 copy to the next number.
//
// Costs: 12 bytes read and 10 written for each weight, in one kernel. Whether a gradient was infinite or NaN is read on
// the device, from the flag that exercise 7.5 sets: so the CPU need not wait for the answer before it starts the
// update.
//
// Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.1; PyTorch, torch.optim.SGD (momentum) and
// the argument found_inf of its fused optimisers.
// Test it: ./workbook test 7.6
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch07 {

/// Exercise 7.6. One step of gradient descent with momentum, in fp32: momentum (n) = decay · momentum + gradients (n),
/// master (n) = master − rate · momentum. weights (n): the master weights in fp16, rounded to nearest even, for the
/// next forward pass. If *found_non_finite is not 0, nothing changes. Any n >= 0; arrays start at multiples of 16
/// bytes. Device memory all of them.
void update_weights(float* master, float* momentum, half* weights, const float* gradients, std::int64_t n, float rate,
                    float decay, const int* found_non_finite);

}  // namespace ch07
