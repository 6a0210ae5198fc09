// Chapter 19, given: where the matrices of a product by four warps lie, as in chapter 13; and what TMA is told of
// tensors in which sequences lie one behind the other, as in chapter 18.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Register Fragments", "Shared Memory Matrix
// Layout", "Matrix Descriptor"; CUDA Driver API, cuTensorMapEncodeTiled.
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch19 {
namespace {

using workbook::cuda::Fragment, workbook::cuda::Swizzle, workbook::cuda::wgmma_matrix, workbook::cuda::WgmmaMatrix;

/// A tile (rows, columns) in shared memory, of 16-bit elements, as sections of 64 columns, one behind the other. Eight
/// rows of a section, 1024 bytes, are a pattern: the 16 bytes of chunk c of row r lie at chunk c ^ r % 8. Tiles begin
/// at multiples of 1024 bytes.
template <class Element, int columns, int rows>
using Tile = Element[columns / 64][rows][64];
constexpr int pattern_bytes = 1024;

/// Columns 16c to 16c + 15 of a tile, K-major, from row first_row on, a multiple of 8.
template <class Element, int sections, int rows>
__device__ __forceinline__ WgmmaMatrix sixteen_columns(const Element (&tile)[sections][rows][64], int first_row,
                                                       int c) {
  const int bytes_before = c / 4 * int(sizeof tile[0]) + first_row * int(sizeof tile[0][0]) + c % 4 * 32;
  return wgmma_matrix(tile, 0, pattern_bytes, Swizzle::bytes_128) + bytes_before;
}
/// Rows 16j to 16j + 15 of a tile, MN-major, from section first_section on.
template <class Element, int sections, int rows>
__device__ __forceinline__ WgmmaMatrix sixteen_rows(const Element (&tile)[sections][rows][64], int j,
                                                    int first_section = 0) {
  const int bytes_before = first_section * int(sizeof tile[0]) + 16 * j * int(sizeof tile[0][0]);
  return wgmma_matrix(tile, sizeof tile[0], pattern_bytes, Swizzle::bytes_128) + bytes_before;
}
/// The first element of chunk `chunk`, 16 bytes, of a row of a section.
template <class Element, int rows>
__device__ __forceinline__ Element* swizzled(Element (&section)[rows][64], int row, int chunk) {
  return &section[row][(chunk ^ row % 8) * 8];
}

/// Where an element lies in its matrix.
struct Place {
  int row, column;
};
/// Element e of what thread number `thread` of the four warps holds of D (64, n).
__device__ __forceinline__ Place place_in_D(int thread, int e) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + e / 2 % 2 * 8, e / 4 * 8 + lane % 4 * 2 + e % 2};
}

/// Rows of one sequence of one head, for TMA: row i has the coordinates 0, before_first + i, section, end. The first of
/// the two has N rows, and the sequence's last row is the last of them: what comes behind it lies outside of the map
/// (chapter 18). No box may be loaded that has no row of the sequence in it: for such a one TMA touches the map's first
/// element, which lies before the tensor. A store does not.
struct SequenceRows {
  int before_first, end;
};
/// Those of the `length` rows from row `first` of a head on, which has N of them.
__device__ inline SequenceRows rows_of_sequence(int head, int N, int first, int length) {
  return {N - length, head * N + first + length};
}

/// A tensor (heads, N, d) for TMA, of which a box is `rows` rows of a sequence and `sections` times 64 columns.
template <int d, class Element>
workbook::cuda::TensorMap map_of(const Element* tensor, std::int64_t heads, std::int64_t N, int rows, int sections) {
  constexpr std::uint64_t row_bytes = sizeof(Element) * d;
  return workbook::cuda::tensor_map(tensor, {64, std::uint64_t(N), d / 64, std::uint64_t(heads * N + 1)},
                                    {row_bytes, 128, row_bytes}, {64, std::uint32_t(rows), std::uint32_t(sections), 1},
                                    Swizzle::bytes_128, std::uint64_t(N) * row_bytes);
}

}  // namespace
}  // namespace ch19
