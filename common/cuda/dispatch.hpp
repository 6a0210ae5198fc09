// From the numbers of a call to what a launch needs: the head dimension as a constant, a grid that CUDA allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"
#ifdef WORKBOOK_INSTANCES  // two kinds of builds that the book's own gates make
#include "common/cuda/instances.hpp"
#endif

namespace workbook::cuda {

/// A grid of so many blocks, all in x, where there is room for most. what: how their number came about, for the
/// message, e.g. "B·H". std::invalid_argument for more than CUDA allows.
inline dim3 grid_of(std::int64_t blocks, const std::string& what) {
  if (blocks > std::numeric_limits<int>::max())
    throw std::invalid_argument(what + " = " + std::to_string(blocks) + ": a grid has at most 2147483647 blocks");
  return dim3(blocks);
}

/// Calls work with d as a constant, a std::integral_constant<int, d>, and gives what it gives. std::invalid_argument
/// for a d that no kernel is built for. `file`: where it is called, which the gates' builds note (instances.hpp).
#ifndef WORKBOOK_INSTANCES
template <class Work>
auto with_head_dim(std::int64_t d, Work work, [[maybe_unused]] const char* file = __builtin_FILE()) {
  if (d == 32) return work(std::integral_constant<int, 32>());
  if (d == 64) return work(std::integral_constant<int, 64>());
  if (d == 128) return work(std::integral_constant<int, 128>());
  throw std::invalid_argument("d = " + std::to_string(d) + " is not supported; allowed are 32, 64 and 128");
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
  throw std::invalid_argument("Br, Bc, warps = " + std::to_string(tiles.Br) + ", " + std::to_string(tiles.Bc) + ", " +
                              std::to_string(tiles.warps) + " is not built");
}

}  // namespace workbook::cuda
