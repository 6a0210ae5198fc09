// Chapter 22: the state of the online softmax in device memory, between two steps of the ring.
//
// Source: Milakov and Gimelshein 2018, section 3.
#pragma once

#include "08_registers/phases.hpp"

namespace ch22 {

/// Of every row: O, not yet divided by l, (heads, rows, d); m and l, (heads, rows), in the units of chapter 8.
struct State {
  float *O, *m, *l;
};

namespace {

using ch08::row_tiles, ch08::position_in_D, ch08::all_lanes;

/// Loads the state of a warp's 32 rows. Rows from `rows` on do not exist: they have seen no key. state is at the warp's
/// first row.
template <class Element, int d>
__device__ __forceinline__ void load_state(ch08::Registers<Element, d>& registers, const State& state, int rows) {
  const int lane = threadIdx.x % 32;
  ch08::clear(registers);
  // TODO(22.1) Of both rows of each row tile: m in all four lanes of the quad; l in one of them, since write_output and
  // store_state add the lanes' l; and O, two adjacent elements at a time (about 12 lines).
  // BEGIN 22.1
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto [row_of_tile, column] = position_in_D(lane, 2 * r);
      const int row = 16 * i + row_of_tile;
      if (row >= rows) continue;
      registers.m[i][r] = state.m[row];
      if (lane % 4 == 0) registers.l[i][r] = state.l[row];
#pragma unroll
      for (int c = 0; c < d / 8; ++c) {
        const float2 pair = *reinterpret_cast<const float2*>(&state.O[row * d + 8 * c + column]);
        registers.O[i][c][2 * r] = pair.x, registers.O[i][c][2 * r + 1] = pair.y;
      }
    }
  // END 22.1
}

/// Stores the state of a warp's rows from first_row to rows - 1.
template <class Element, int d>
__device__ __forceinline__ void store_state(const ch08::Registers<Element, d>& registers, const State& state,
                                            int first_row, int rows) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < row_tiles; ++i)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float l = registers.l[i][r];
      l += __shfl_xor_sync(all_lanes, l, 1);
      l += __shfl_xor_sync(all_lanes, l, 2);
      const auto [row_of_tile, column] = position_in_D(lane, 2 * r);
      const int row = 16 * i + row_of_tile;
      if (row < first_row || row >= rows) continue;
      if (lane % 4 == 0) state.m[row] = registers.m[i][r], state.l[row] = l;
#pragma unroll
      for (int c = 0; c < d / 8; ++c)
        *reinterpret_cast<float2*>(&state.O[row * d + 8 * c + column]) =
            make_float2(registers.O[i][c][2 * r], registers.O[i][c][2 * r + 1]);
    }
}

}  // namespace
}  // namespace ch22
