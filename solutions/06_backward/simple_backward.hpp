// Chapter 6, the backward pass as the paper writes it down: the first of the chapter's kernels.
#pragma once

#include <cstddef>

#include "backward.hpp"

namespace ch06 {

/// dQ, dK and dV as backward() gives them, for d = 64 only: one warp a thread block, every pair of blocks masked.
void simple_backward(const BackwardCall<half>& call, float2* rows);

/// Its only sizes, 32 rows of each, and the bytes of shared memory that a thread block takes; 0 for other sizes.
inline constexpr GradientTiles simple_built[] = {{32, 32, 1}};
std::size_t simple_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch06
