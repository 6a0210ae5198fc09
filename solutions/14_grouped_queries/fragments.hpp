// Chapter 14, given: tiles with swizzled rows in shared memory, and operands of mma.m16n8k16, as in chapters 8 and 9.
#pragma once

#include "common/cuda/convert.hpp"
#include "common/cuda/kernel.hpp"

namespace ch14 {
namespace {

using workbook::cuda::cp_async_16, workbook::cuda::cp_async_commit_group, workbook::cuda::cp_async_wait_group;
using workbook::cuda::cvt_rn_x2, workbook::cuda::exp2_ftz, workbook::cuda::mma_m16n8k16, workbook::cuda::stmatrix_x4;
using workbook::cuda::Fragment;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

/// Where element e of a lane is in a part (16, 8) of a result.
struct Place {
  int row, column;
};
__device__ inline Place place_in_D(int lane, int e) {
  return {lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2};
}

/// The first element of a chunk of 8 elements of a row. Where a row has 64 bytes, two of them share their chunks'
/// order.
template <class Element, int rows, int columns>
__device__ __forceinline__ Element* swizzled(Element (&tile)[rows][columns], int row, int chunk) {
  constexpr int side_by_side = columns < 64 ? 64 / columns : 1, chunks = 8 / side_by_side;
  return &tile[row][(chunk ^ row / side_by_side % chunks) * 8];
}

/// Starts to copy rows x d elements from device memory into a tile, by `threads` threads; the rest of the tile becomes
/// zeros.
template <int threads, class Element, int tile_rows, int d>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][d], const Element* __restrict__ source, int rows) {
  const int first_row = threadIdx.x / (d / 8), chunk = threadIdx.x % (d / 8);
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / (d / 8)) {
    const int row = first_row + i;
    cp_async_16(swizzled(tile, row, chunk), source + row * d + 8 * chunk, row < rows ? 16 : 0);
  }
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

/// Two parts (16, 8), side by side and rounded to Element, are a left operand (16, 16).
template <class Element>
__device__ __forceinline__ Fragment<Element, 4> as_A(const Fragment<float, 4>& left, const Fragment<float, 4>& right) {
  Fragment<Element, 4> A;
  A[0] = cvt_rn_x2<Element>(left[0], left[1]), A[1] = cvt_rn_x2<Element>(left[2], left[3]);
  A[2] = cvt_rn_x2<Element>(right[0], right[1]), A[3] = cvt_rn_x2<Element>(right[2], right[3]);
  return A;
}

}  // namespace
}  // namespace ch14
