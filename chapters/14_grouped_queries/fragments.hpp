// Chapter 14, given: tiles with swizzled rows in shared memory, and the operands of mma.m16n8k16, as in chapter 8.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch14 {
namespace {

using workbook::cuda::Fragment;

/// The row and column of a lane's element e in a part, an accumulator (16, 8).
struct Position {
  int row, column;
};
__device__ inline Position position_in_part(int lane, int e) {
  return {lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2};
}

/// The address of a chunk, 8 elements (16 bytes), in a swizzled row. Rows of 64 bytes share the order of chunks in
/// pairs.
template <class Element, int rows, int columns>
__device__ __forceinline__ Element* swizzled(Element (&tile)[rows][columns], int row, int chunk) {
  constexpr int side_by_side = columns < 64 ? 64 / columns : 1, chunks = 8 / side_by_side;
  return &tile[row][(chunk ^ row / side_by_side % chunks) * 8];
}

/// Loads A (16, 16), the tile from `row` and `column` on; B whose columns are 16 rows of the tile (Bᵀ is stored); and B
/// whose rows are 16 rows of the tile.
template <class Element, int rows, int d>
__device__ __forceinline__ void load_A(Fragment<Element, 4>& A, Element (&tile)[rows][d], int row, int column) {
  const int lane = threadIdx.x % 32;
  workbook::cuda::ldmatrix_x4(A, swizzled(tile, row + lane % 16, column / 8 + lane / 16));
}
template <class Element, int rows, int d>
__device__ __forceinline__ void load_B_by_columns(Fragment<Element, 4>& B, Element (&tile)[rows][d], int row,
                                                  int column) {
  const int lane = threadIdx.x % 32;
  workbook::cuda::ldmatrix_x4(B, swizzled(tile, row + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2));
}
template <class Element, int rows, int d>
__device__ __forceinline__ void load_B_by_rows(Fragment<Element, 4>& B, Element (&tile)[rows][d], int row, int column) {
  const int lane = threadIdx.x % 32;
  workbook::cuda::ldmatrix_x4_trans(B, swizzled(tile, row + lane % 16, column / 8 + lane / 16));
}

}  // namespace
}  // namespace ch14
