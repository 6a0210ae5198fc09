// Chapter 17, backward, given: write_dQ, which rotates dQ back. All else is in chapter 15's gradient_sums.hpp.
#pragma once

#include "15_which_pairs/gradient_sums.hpp"
#include "gradient_phases.hpp"

namespace ch17 {
namespace {

/// dQ = scale·dQ_sum, rotated back if `table` is given; its first row is that of query 0. One warp per pair of parts
/// (16, 8) that are d / 2 columns apart; `pairs` pairs.
template <int d>
__global__ void write_dQ(float* dQ_sum,                     // (heads, padded, d), see address_in_sum
                         const float2* __restrict__ table,  // (Nq, d / 2), or nullptr
                         Element* __restrict__ dQ,          // (heads, Nq, d)
                         std::int64_t pairs, int padded, int Nq, float scale) {
  constexpr int apart = d / 16;
  const std::int64_t pair = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32, row_tile = pair / apart;
  if (pair >= pairs) return;
  const int tiles_of_head = padded / 16, lane = threadIdx.x % 32, part = pair % apart;
  const std::int64_t head = row_tile / tiles_of_head;
#pragma unroll
  for (int e = 0; e < 4; e += 2) {
    const auto [row, column] = position_in_part(lane, e);
    const int query = row_tile % tiles_of_head * 16 + row, c = 8 * part + column;
    if (query >= Nq) continue;
    float2 rotated[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const float x = *address_in_sum<d>(dQ_sum, row_tile, part, e + k) * scale,
                  y = *address_in_sum<d>(dQ_sum, row_tile, part + apart, e + k) * scale;
      rotated[k] =
          table == nullptr ? float2{x, y} : rotate_pair_back(x, y, table[std::int64_t(query) * (d / 2) + c + k]);
    }
    auto* address = reinterpret_cast<std::uint32_t*>(dQ + (head * Nq + query) * d + c);
    address[0] = cvt_rn_x2<Element>(rotated[0].x, rotated[1].x),
    address[d / 4] = cvt_rn_x2<Element>(rotated[0].y, rotated[1].y);
  }
}

}  // namespace
}  // namespace ch17
