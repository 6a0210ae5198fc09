// Chapter 6, given as a contrast: the backward in one kernel, with five matrix products in place of seven.
//
// What changes: a block that owns keys has dS of its keys in shared memory anyway, so it also multiplies dQ += dS K.
// But every block of a head has a part of each dQ, and they run at the same time: the parts meet in device memory, by
// atomic additions in fp32.
// What it costs: additions in the order in which the blocks happen to come, so that two runs differ in the last bits of
// dQ; 4 bytes of scratch for every element of dQ; and traffic that grows with the number of key tiles.
//
// Source: Dao 2023, Algorithm 2 and section 3.2 ("we use atomic adds to communicate between different thread blocks").
// Test it: ./workbook test 6
#pragma once

#include <cstdint>

#include "backward.hpp"

namespace ch06 {

/// How many floats atomic_backward needs as scratch: those of dQ, with Nq rounded up to 16.
std::int64_t dQ_sum_size(const workbook::Shape& shape);

/// Its sizes for d = 32, 64 and 128, one for each.
inline constexpr GradientTiles atomic_built[] = {{64, 32, 2}, {128, 32, 4}, {128, 64, 8}};

/// dQ, dK and dV as backward() gives them; dQ_sum has dQ_sum_size() floats. d is 32, 64 or 128.
template <class Gradient>
void atomic_backward(const BackwardCall<half, Gradient>& call, float2* rows, float* dQ_sum);

/// Bytes of shared memory that a block takes; 0: there is no kernel of these sizes.
std::size_t atomic_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch06
