// Turns the numbers of a call into launch parameters: the head dimension as a constant, and a grid that CUDA allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"
#include "common/cuda/refusals.hpp"
#ifndef __CUDACC__  // not all kernels may be compiled
#include "common/cuda/instances.hpp"
#endif

namespace workbook::cuda {

/// A grid of `blocks` thread blocks, all in x, the dimension with the largest limit. what: the formula of their number
/// for the message, e.g. "B·H". std::invalid_argument for more than CUDA allows.
inline dim3 grid_of(std::int64_t blocks, const char* what) {
  if (blocks > std::numeric_limits<int>::max()) refuse_grid(blocks, what);
  return dim3(blocks);
}

/// Calls work with d as a constant, a std::integral_constant<int, d>, and returns its result. least: the smallest d
/// that kernels are built for, 32 or 64. std::invalid_argument for a d that they are not built for.
#ifdef __CUDACC__
template <int least = 32, class Work>
auto with_head_dim(std::int64_t d, Work work) {
  if constexpr (least == 32)
    if (d == 32) return work(std::integral_constant<int, 32>());
  if (d == 64) return work(std::integral_constant<int, 64>());
  if (d == 128) return work(std::integral_constant<int, 128>());
  refuse_head_dim(d, least);
}
#endif

/// built[i] as constants: t.Br, t.Bc, t.warps. (By reference: g++ 13 with precompiled headers cannot copy
/// Tiles at compile time.)
template <const auto& built, std::size_t i>
struct TilesConstant {
  static constexpr int Br = built[i].Br, Bc = built[i].Bc, warps = built[i].warps;
};

/// Calls work with d and the tiles as constants, and returns its result. built: an array of the Tiles that kernels are
/// built for. std::invalid_argument for others.
template <const auto& built, std::size_t i = 0, class Work>
auto with_sizes(std::int64_t d, const Tiles& tiles, Work work) {
  if (tiles == built[i])
    return with_head_dim(d, [&](auto d_constant) { return work(d_constant, TilesConstant<built, i>()); });
  if constexpr (i + 1 < std::size(built)) return with_sizes<built, i + 1>(d, tiles, work);
  refuse_tiles(tiles);
}

}  // namespace workbook::cuda
