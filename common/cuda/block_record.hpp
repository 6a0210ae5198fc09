// What each block of the last launch read and masked, as numbers (simulator).
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/operations.hpp"

namespace workbook::cuda {

/// -> first_row (the row of Q that the block read first, all heads counted on; -1: none), K_tiles, V_tiles,
/// masked_tiles (sets of tiles of its head, tile j as bit j; at most 64 tiles): an element for each block.
void record_blocks(const Arguments& call, const Tiles& tiles);

}  // namespace workbook::cuda
