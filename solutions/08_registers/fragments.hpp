// Chapter 8: where the elements of a warp's matrices lie. In registers: which lane holds which of them for
// mma.m16n8k16. In shared memory: tiles with swizzled rows, and how ldmatrix brings them to those lanes.
//
// Source: PTX ISA, sections "Matrix fragments for mma.m16n8k16" and "ldmatrix".
#pragma once

#include "common/cuda/kernel.hpp"

namespace ch08 {
namespace {

using workbook::cuda::Fragment;

/// Where an element lies in its matrix.
struct Place {
  int row, column;
};

// D (16, 8) += A (16, 16) B (16, 8): a lane holds 8 elements of A and 4 of B, two in each register, and 4 of D, one in
// each. Every matrix is made of 8x8 parts, and a lane holds two neighbours of each part:
//
//        A: elements                    B: elements         D: elements
//        columns 0-7   columns 8-15     columns 0-7         columns 0-7
//   rows   0-7   0 1       4 5          rows 0-7   0 1      rows 0-7   0 1
//   rows  8-15   2 3       6 7          rows 8-15  2 3      rows 8-15  2 3
//
// In a part of A and D the four lanes of quad r, 4r to 4r + 3, have row r: two columns each. In a part of B they have
// column r: two rows each.
//
// TODO(8.1) Row and column of one lane's element of A (0 to 7), B (0 to 3) and D (0 to 3) (3 lines).
// STUB: __device__ inline Place place_in_A(int lane, int element) {
// STUB:   WORKBOOK_TODO(8.1);
// STUB: }
// STUB: __device__ inline Place place_in_B(int lane, int element) {
// STUB:   WORKBOOK_TODO(8.1);
// STUB: }
// STUB: __device__ inline Place place_in_D(int lane, int element) {
// STUB:   WORKBOOK_TODO(8.1);
// STUB: }
// BEGIN 8.1
__device__ inline Place place_in_A(int lane, int element) {
  return {lane / 4 + element / 2 % 2 * 8, lane % 4 * 2 + element % 2 + element / 4 * 8};
}
__device__ inline Place place_in_B(int lane, int element) {
  return {lane % 4 * 2 + element % 2 + element / 2 * 8, lane / 4};
}
__device__ inline Place place_in_D(int lane, int element) {
  return {lane / 4 + element / 2 * 8, lane % 4 * 2 + element % 2};
}
// END 8.1

// A row of a tile in shared memory is made of chunks of 8 elements, 16 bytes: what a lane copies, and a row of the 8x8
// matrices that ldmatrix loads. It loads eight rows at a time, and all 32 banks serve it at once if the eight chunks
// lie in eight different groups of four banks. 128 bytes have one chunk in each group. So a row's chunks change places
// among each other, in every row in another way: by the exclusive or with the number of the row. Two rows of 64 bytes
// (d = 32) lie side by side in the banks; there the number of the pair counts.
//
// ldmatrix_x4 loads four such matrices. Lane 8i + r names row r of matrix i, and register i gets that matrix.
//
// TODO(8.2) The first element of a chunk of a row. Then three loads that name their rows by it, of 16 rows and 16
// columns of the tile, from this row and column on. load_A: they are A. load_B_by_columns, for K: row n of the tile is
// column n of B; columns 0 to 7 go to B[0] and B[1], columns 8 to 15 to B[2] and B[3]. load_B_by_rows, for V: they are
// B, and its columns go to the same registers (about 9 lines).
// STUB: template <class Element, int rows, int d>
// STUB: __device__ __forceinline__ Element* swizzled(Element (&tile)[rows][d], int row, int chunk) {
// STUB:   WORKBOOK_TODO(8.2);
// STUB: }
// STUB: template <class Element, int rows, int d>
// STUB: __device__ __forceinline__ void load_A(Fragment<Element, 4>& A, Element (&tile)[rows][d], int row,
// STUB:                                        int column) {
// STUB:   WORKBOOK_TODO(8.2);
// STUB: }
// STUB: template <class Element, int rows, int d>
// STUB: __device__ __forceinline__ void load_B_by_columns(Fragment<Element, 4>& B, Element (&tile)[rows][d], int row,
// STUB:                                                   int column) {
// STUB:   WORKBOOK_TODO(8.2);
// STUB: }
// STUB: template <class Element, int rows, int d>
// STUB: __device__ __forceinline__ void load_B_by_rows(Fragment<Element, 4>& B, Element (&tile)[rows][d], int row,
// STUB:                                                int column) {
// STUB:   WORKBOOK_TODO(8.2);
// STUB: }
// BEGIN 8.2
template <class Element, int rows, int d>
__device__ __forceinline__ Element* swizzled(Element (&tile)[rows][d], int row, int chunk) {
  constexpr int side_by_side = d < 64 ? 64 / d : 1, chunks = 8 / side_by_side;
  return &tile[row][(chunk ^ row / side_by_side % chunks) * 8];
}
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
// END 8.2

}  // namespace
}  // namespace ch08
