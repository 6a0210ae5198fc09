// Chapter 17, given: tiles with swizzled rows in shared memory, and operands of mma.m16n8k16, as in chapter 8.
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch17 {
namespace {

using workbook::cuda::Fragment;

/// Where element e of a lane is in a part (16, 8) of a result.
struct Place {
  int row, column;
};
__device__ inline Place place_in_D(int lane, int e) {
  return {lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2};
}

/// The first element of a chunk of 8 elements of a row. Where a row has 64 bytes, two share the order of their chunks.
template <class Element, int rows, int columns>
__device__ __forceinline__ Element* swizzled(Element (&tile)[rows][columns], int row, int chunk) {
  constexpr int side_by_side = columns < 64 ? 64 / columns : 1, chunks = 8 / side_by_side;
  return &tile[row][(chunk ^ row / side_by_side % chunks) * 8];
}

/// A left operand (16, 16); a right one of 16 rows of the tile, which are its columns; and one whose rows they are.
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
}  // namespace ch17
