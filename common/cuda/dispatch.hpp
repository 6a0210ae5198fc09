// From the numbers of a call to what a launch needs: the head dimension as a constant, a grid that CUDA allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"
#include "common/cuda/refusals.hpp"
#ifndef __CUDACC__  // not all kernels may be wanted, and those that are asked for are noted
#include "common/cuda/instances.hpp"
#endif

namespace workbook::cuda {

/// A grid of so many blocks, all in x, where there is room for most. what: how their number came about, for the
/// message, e.g. "B·H". std::invalid_argument for more than CUDA allows.
inline dim3 grid_of(std::int64_t blocks, const char* what) {
  if (blocks > std::numeric_limits<int>::max()) refuse_grid(blocks, what);
  return dim3(blocks);
}

/// Calls work with d as a constant, a std::integral_constant<int, d>, and gives what it gives. least: the smallest d
/// that kernels are built for, 32 or 64. std::invalid_argument for a d that they are not built for. `file`: where it is
/// called, for builds that note it (instances.hpp).
#ifdef __CUDACC__
template <int least = 32, class Work>
auto with_head_dim(std::int64_t d, Work work, [[maybe_unused]] const char* file = __builtin_FILE()) {
  if constexpr (least == 32)
    if (d == 32) return work(std::integral_constant<int, 32>());
  if (d == 64) return work(std::integral_constant<int, 64>());
  if (d == 128) return work(std::integral_constant<int, 128>());
  refuse_head_dim(d, least);
}
#endif

/// Tiles as constants: t.Br, t.Bc, t.warps.
template <Tiles tiles>
struct TilesConstant {
  static constexpr int Br = tiles.Br, Bc = tiles.Bc, warps = tiles.warps;
};

/// Calls work with d and the tiles as constants, and gives what it gives. built: the Tiles that kernels are built for,
/// an array. std::invalid_argument for others.
template <const auto& built, std::size_t i = 0, class Work>
auto with_sizes(std::int64_t d, const Tiles& tiles, Work work, const char* file = __builtin_FILE()) {
  if (tiles == built[i])
    return with_head_dim(
        d, [&](auto d_constant) { return work(d_constant, TilesConstant<built[i]>()); }, file);
  if constexpr (i + 1 < std::size(built)) return with_sizes<built, i + 1>(d, tiles, work, file);
  refuse_tiles(tiles);
}

}  // namespace workbook::cuda
