// Chapter 4, the ladder: the two steps between chapter 3 and Q split, so that each cause shows its own share. Given.
// Both still divide the keys of a tile among the warps.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.2 (the grid) and 3.3 ("split-K" against "split-Q").
#pragma once

#include "q_split.hpp"

namespace ch04 {

enum class Rung {
  combined_once,   ///< chapter 3, but each warp keeps m, l and O of its own keys, and they are merged after the last
                   ///< tile
  query_tile_grid  ///< the same, and a block has one tile of queries, not all of a head
};

/// As q_split(), with Br = Bc = 64 and 4 warps; d = 64 only.
void ladder(const ForwardCall<half>& call, Rung rung);
std::size_t ladder_shared_bytes();

}  // namespace ch04
