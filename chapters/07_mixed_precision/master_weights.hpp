// Chapter 7, master weights: the weights that are trained are fp32; the network computes with a copy in fp16.
//
// An fp16 weight of 1 has neighbours at a distance of about 0.001. An update of 0.0001 is not half of that: added in
// fp16 it changes nothing, however often it comes. In fp32 the updates add up, and from time to time one of them takes
// the fp16 copy to the next number.
//
// Source: Micikevicius et al. 2018, "Mixed Precision Training", section 3.1.
// Test it: ./workbook test 7.6
#pragma once

#include <cstdint>
#include <span>

namespace ch07 {

/// Exercise 7.6. master (n), fp32: less learning_rate times gradients (n). weights (n): the master weights as fp16
/// codes, rounded to nearest even, for the next forward pass.
void update_weights(std::span<float> master, std::span<std::uint16_t> weights, std::span<const float> gradients,
                    float learning_rate);

}  // namespace ch07
