// The rows and tiles that each thread block of the last launch read and masked (simulator).
#pragma once

#include "common/cuda/calls.hpp"
#include "common/cuda/operations.hpp"

namespace workbook::cuda {

/// -> one element per thread block: first_row (the first row of Q read, numbered through all heads; -1: none), K_tiles,
/// V_tiles, masked_tiles (sets of tiles of its head, tile j as bit j; at most 64 tiles).
void record_blocks(const Arguments& call, const Tiles& tiles);

}  // namespace workbook::cuda
