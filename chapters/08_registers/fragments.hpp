// Chapter 8: the layout of a warp's matrices. In registers: which lane holds which element for mma.m16n8k16. In shared
// memory: tiles with swizzled rows, and the ldmatrix loads from them.
//
// Source: PTX ISA, sections "Matrix fragments for mma.m16n8k16" and "ldmatrix".
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch08 {
namespace {

using workbook::cuda::Fragment;

/// The row and the column of an element in its matrix.
struct Position {
  int row, column;
};

// D (16, 8) += A (16, 16) B (16, 8): a lane holds 8 elements of A and 4 of B, two per register, and 4 of D, one per
// register. A, B and D consist of 8x8 matrices, and a lane holds two adjacent elements of each of these:
//
//        A: elements                    B: elements         D: elements
//        columns 0-7   columns 8-15     columns 0-7         columns 0-7
//   rows   0-7   0 1       4 5          rows 0-7   0 1      rows 0-7   0 1
//   rows  8-15   2 3       6 7          rows 8-15  2 3      rows 8-15  2 3
//
// In an 8x8 matrix of A or D, the four lanes of quad r, 4r to 4r + 3, hold row r: two columns each. In B they hold
// column r: two rows each.
//
// TODO(8.1) The row and the column of a lane's element of A (0 to 7), B (0 to 3) and D (0 to 3) (3 lines).
// BEGIN 8.1
__device__ inline Position position_in_A(int lane, int element) {
  WORKBOOK_TODO(8.1);
}
__device__ inline Position position_in_B(int lane, int element) {
  WORKBOOK_TODO(8.1);
}
__device__ inline Position position_in_D(int lane, int element) {
  WORKBOOK_TODO(8.1);
}
// END 8.1

// A chunk is 8 elements, 16 bytes, of a row of a tile: what cp.async copies, and a row of an 8x8 matrix of ldmatrix.
// ldmatrix reads eight chunks at a time. They have no bank conflict if they are in eight different groups of four
// banks, and 128 bytes have one chunk in each group. So the chunks of row r are permuted: their index is XORed with r
// modulo 8. Two rows of 64 bytes (d = 32) share the 32 banks, so there the index of the pair of rows is used.
//
// ldmatrix_x4 loads four 8x8 matrices. Lane 8i + r supplies the address of row r of matrix i, which goes to register i.
//
// TODO(8.2) swizzled: the address of a chunk's first element. The loads read 16 rows and 16 columns of the tile, from
// `row` and `column` on. load_A: these are A. load_B_by_columns, for K: row n of the tile is column n of B; columns 0
// to 7 go to B[0] and B[1], columns 8 to 15 to B[2] and B[3]. load_B_by_rows, for V: these are B, whose columns go to
// the same registers (about 9 lines).
// BEGIN 8.2
template <class Element, int rows, int d>
__device__ __forceinline__ Element* swizzled(Element (&tile)[rows][d], int row, int chunk) {
  WORKBOOK_TODO(8.2);
}
template <class Element, int rows, int d>
__device__ __forceinline__ void load_A(Fragment<Element, 4>& A, Element (&tile)[rows][d], int row,
                                       int column) {
  WORKBOOK_TODO(8.2);
}
template <class Element, int rows, int d>
__device__ __forceinline__ void load_B_by_columns(Fragment<Element, 4>& B, Element (&tile)[rows][d], int row,
                                                  int column) {
  WORKBOOK_TODO(8.2);
}
template <class Element, int rows, int d>
__device__ __forceinline__ void load_B_by_rows(Fragment<Element, 4>& B, Element (&tile)[rows][d], int row,
                                               int column) {
  WORKBOOK_TODO(8.2);
}
// END 8.2

}  // namespace
}  // namespace ch08
