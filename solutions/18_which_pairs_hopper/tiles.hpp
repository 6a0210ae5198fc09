// Chapter 18: where the matrices of a product by four warps lie, as in chapter 11; and what TMA is told of tensors in
// which sequences lie one behind the other.
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

/// A tile (rows, d) in shared memory, of 16-bit elements: sections of 64 columns, one behind the other. Eight rows of a
/// section, 1024 bytes, are a pattern of the swizzle.
template <class Element, int d, int rows>
using Tile = Element[d / 64][rows][64];
constexpr int pattern_bytes = 1024;

/// The columns 16c to 16c + 15 of a tile, K-major; the rows 16j to 16j + 15, MN-major.
template <class Element, int sections, int rows>
__device__ __forceinline__ WgmmaMatrix sixteen_columns(const Element (&tile)[sections][rows][64], int c) {
  const int bytes_before = c / 4 * int(sizeof tile[0]) + c % 4 * 32;  // four times 16 columns are a section
  return wgmma_matrix(tile, 0, pattern_bytes, Swizzle::bytes_128) + bytes_before;
}
template <class Element, int sections, int rows>
__device__ __forceinline__ WgmmaMatrix sixteen_rows(const Element (&tile)[sections][rows][64], int j) {
  const int bytes_before = 16 * j * int(sizeof tile[0][0]);
  return wgmma_matrix(tile, sizeof tile[0], pattern_bytes, Swizzle::bytes_128) + bytes_before;
}

/// Where element e of thread number `thread` of the four warps lies in D (64, n).
struct Place {
  int row, column;
};
__device__ inline Place place_in_D(int thread, int e) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + e / 2 % 2 * 8, e / 4 * 8 + lane % 4 * 2 + e % 2};
}

// Packed sequences. A box of 64 or Bc rows may begin in a sequence and end in the next one. Of K the mask leaves out
// what is not the sequence's own; of V not even a product with P = 0 may see it, since 0·NaN is NaN; and a store of O
// would overwrite the neighbour's rows. TMA does leave out what lies outside of a dimension. But a dimension's size is
// the map's, and there is one map for all sequences.
//
// So the rows have two dimensions in the map, which both go on from row to row: the place of an element is the sum of
// all coordinates times their strides, whichever dimensions they are of. The first of the two has N rows, and a box is
// where in it the sequence's end and the dimension's are the same: row i of a sequence of `length` rows has the
// coordinate N - length + i, and behind the last row there is nothing. The other one, without a bound that matters,
// moves the box to where the sequence is. It counts the rows of all heads, up to the sequence's end; so the element
// with all coordinates 0 lies N rows before the tensor. No box may read there, and none may be loaded of which nothing
// is inside: for such a one TMA touches the map's first element (seen on an H200; a store does not).
//
//   N = 10, sequences of 4 and 6 rows; head 0, rows 2, 3, … of the first: coordinates 10 - 4 + 2 = 8 and 4
//   row of the tensor = 8 + 4 - 10 = 2; the box's third row has coordinate 10 and is outside

/// Rows of one sequence of one head, for TMA: row i has the coordinates 0, before_first + i, 0, end.
struct SequenceRows {
  int before_first, end;
};
/// Those of the `length` rows from row `first` of a head on, which has N of them.
__device__ inline SequenceRows rows_of_sequence(int head, int N, int first, int length) {
  // TODO(18.3) As in the example (1 line).
  // BEGIN 18.3
  return {N - length, head * N + first + length};
  // END 18.3
}

/// A tensor (heads, N, d) for TMA, of which a box is `rows` rows of a sequence, in the layout of a Tile.
template <int d, class Element>
TensorMap map_of(const Element* tensor, std::int64_t heads, std::int64_t N, int rows) {
  constexpr std::uint64_t row_bytes = sizeof(Element) * d;
  return workbook::cuda::tensor_map(tensor, {64, std::uint64_t(N), d / 64, std::uint64_t(heads * N + 1)},
                                    {row_bytes, 128, row_bytes}, {64, std::uint32_t(rows), d / 64, 1},
                                    Swizzle::bytes_128, std::uint64_t(N) * row_bytes);
}

}  // namespace
}  // namespace ch18
