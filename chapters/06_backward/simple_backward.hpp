// Chapter 6, given: the simplest kernels of the backward pass.
#pragma once

#include <cstddef>

#include "backward.hpp"

namespace ch06 {

/// The same dQ, dK and dV as backward(), for d = 64 only: one warp per thread block, a mask in every tile of S.
void simple_backward(const BackwardCall<half>& call, float2* rows);

/// Its only sizes, tiles of 32 rows, and the bytes of shared memory per thread block; 0 for other sizes.
inline constexpr GradientTiles simple_built[] = {{32, 32, 1}};
std::size_t simple_shared_bytes(int d, const GradientTiles& tiles);

}  // namespace ch06
