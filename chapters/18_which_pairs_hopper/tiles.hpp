// Chapter 18: the layout of wgmma's matrices, as in chapter 11; and tensor maps for packed sequences, whose boxes end
// with their sequence.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Register Fragments", "Shared Memory Matrix
// Layout", "Matrix Descriptor"; CUDA Driver API, cuTensorMapEncodeTiled.
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch18 {
namespace {

using workbook::cuda::Fragment, workbook::cuda::Swizzle, workbook::cuda::TensorMap;
using workbook::cuda::wgmma_matrix, workbook::cuda::WgmmaMatrix;

/// A tile (rows, d) of 16-bit elements in shared memory, stored as consecutive sections of 64 columns. Eight rows of a
/// section, 1024 bytes, form one swizzle pattern.
template <class Element, int d, int rows>
using Tile = Element[d / 64][rows][64];
constexpr int pattern_bytes = 1024;

/// Columns 16c to 16c + 15 of a tile, K-major; rows 16j to 16j + 15, MN-major.
template <class Element, int sections, int rows>
__device__ __forceinline__ WgmmaMatrix K_major_descriptor(const Element (&tile)[sections][rows][64], int c) {
  const int offset = c / 4 * int(sizeof tile[0]) + c % 4 * 32;  // a section is four groups of 16 columns
  return wgmma_matrix(tile, 0, pattern_bytes, Swizzle::bytes_128) + offset;
}
template <class Element, int sections, int rows>
__device__ __forceinline__ WgmmaMatrix MN_major_descriptor(const Element (&tile)[sections][rows][64], int j) {
  const int offset = 16 * j * int(sizeof tile[0][0]);
  return wgmma_matrix(tile, sizeof tile[0], pattern_bytes, Swizzle::bytes_128) + offset;
}

/// The coordinates of an element in its matrix.
struct Coordinates {
  int row, column;
};
/// The coordinates of element e of the accumulator D (64, n) in thread `thread` of the warpgroup.
__device__ inline Coordinates coordinates_in_D(int thread, int e) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + e / 2 % 2 * 8, e / 4 * 8 + lane % 4 * 2 + e % 2};
}

// A box of 64 or Bc rows may extend past the end of its packed sequence. Rows of the next sequence must not reach the
// PV matmul, where P = 0 times NaN is NaN, and the store of O must not write them. TMA excludes elements that are out
// of bounds in some dimension. But the bounds belong to the tensor map, which all sequences share.
//
// Therefore dimensions 1 and 3 of the map have the same stride, one row. Coordinates (0, r, 0, end) address row
// r + end - N of the tensor, numbered across all heads, but are in bounds in dimension 1 only if r < N. If `end` is one
// past the sequence's last row, then r = N is the first row past the sequence: out of bounds.
//
// The element with coordinates 0 is N rows before the tensor. No box may access a row before its sequence, and a box
// that is loaded must contain a row of the sequence. Otherwise TMA accesses the map's first element (observed on an
// H200; a store does not).

/// The TMA coordinates of one sequence's rows in one head: row i has the coordinates (0, before_first + i, 0, end).
struct SequenceRows {
  int before_first, end;
};
/// The coordinates of a sequence of `length` rows from row `first` of a head on. A head has N rows.
__device__ inline SequenceRows rows_of_sequence(int head, int N, int first, int length) {
  // TODO(18.3) end is one past the sequence's last row, numbered across all heads. In dimension 1 the sequence's last
  // row has coordinate N - 1 (1 line).
  // BEGIN 18.3
  WORKBOOK_TODO(18.3);
  // END 18.3
}

/// The tensor map of a tensor (heads, N, d). Its box is `rows` rows of a sequence, in the layout of a Tile.
template <int d, class Element>
TensorMap make_tensor_map(const Element* tensor, std::int64_t heads, std::int64_t N, int rows) {
  constexpr std::uint64_t row_bytes = sizeof(Element) * d;
  return workbook::cuda::tensor_map(tensor, {64, std::uint64_t(N), d / 64, std::uint64_t(heads * N + 1)},
                                    {row_bytes, 128, row_bytes}, {64, std::uint32_t(rows), d / 64, 1},
                                    Swizzle::bytes_128, std::uint64_t(N) * row_bytes);
}

}  // namespace
}  // namespace ch18
