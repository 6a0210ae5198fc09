// Chapter 19, given: the layout of wgmma's matrices in shared memory and registers, as in chapter 13; and tensor maps
// for packed sequences, whose boxes end with their sequence, as in chapter 18.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Register Fragments", "Shared Memory Matrix
// Layout", "Matrix Descriptor"; CUDA Driver API, cuTensorMapEncodeTiled.
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch19 {
namespace {

using workbook::cuda::Fragment, workbook::cuda::Swizzle, workbook::cuda::wgmma_matrix, workbook::cuda::WgmmaMatrix;

/// A tile (rows, columns) in shared memory, of 16-bit elements, stored as consecutive sections of 64 columns. Each
/// eight rows of a section, 1024 bytes, are one swizzle pattern: chunk c (16 bytes) of row r is stored at chunk c ^ r
/// % 8. Tiles begin at multiples of 1024 bytes.
template <class Element, int columns, int rows>
using Tile = Element[columns / 64][rows][64];
constexpr int pattern_bytes = 1024;

/// Columns 16c to 16c + 15 of a tile from row first_row on, K-major. first_row is a multiple of 8.
template <class Element, int sections, int rows>
__device__ __forceinline__ WgmmaMatrix K_major_descriptor(const Element (&tile)[sections][rows][64], int first_row,
                                                          int c) {
  const int offset = c / 4 * int(sizeof tile[0]) + first_row * int(sizeof tile[0][0]) + c % 4 * 32;
  return wgmma_matrix(tile, 0, pattern_bytes, Swizzle::bytes_128) + offset;
}
/// Rows 16j to 16j + 15 of a tile from section first_section on, MN-major.
template <class Element, int sections, int rows>
__device__ __forceinline__ WgmmaMatrix MN_major_descriptor(const Element (&tile)[sections][rows][64], int j,
                                                           int first_section = 0) {
  const int offset = first_section * int(sizeof tile[0]) + 16 * j * int(sizeof tile[0][0]);
  return wgmma_matrix(tile, sizeof tile[0], pattern_bytes, Swizzle::bytes_128) + offset;
}
/// The address of chunk `chunk` (16 bytes) of a row of a section.
template <class Element, int rows>
__device__ __forceinline__ Element* swizzled(Element (&section)[rows][64], int row, int chunk) {
  return &section[row][(chunk ^ row % 8) * 8];
}

/// Row and column of an element in its matrix.
struct Coordinates {
  int row, column;
};
/// The coordinates of element e of the accumulator D (64, n) in thread `thread` of the warpgroup.
__device__ __forceinline__ Coordinates coordinates_in_D(int thread, int e) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + e / 2 % 2 * 8, e / 4 * 8 + lane % 4 * 2 + e % 2};
}

/// The TMA coordinates of one sequence's rows in one head: row i has the coordinates (0, before_first + i, section,
/// end). Rows past the sequence's end are out of bounds in dimension 1 (chapter 18). A box that is loaded must contain
/// a row of the sequence. Otherwise TMA accesses the map's first element, which is N rows before the tensor. A store
/// does not.
struct SequenceRows {
  int before_first, end;
};
/// The coordinates of a sequence of `length` rows from row `first` of a head on. A head has N rows.
__device__ inline SequenceRows rows_of_sequence(int head, int N, int first, int length) {
  return {N - length, head * N + first + length};
}

/// The tensor map of a tensor (heads, N, d). A box is `rows` rows of a sequence and `sections` times 64 columns.
template <int d, class Element>
workbook::cuda::TensorMap make_tensor_map(const Element* tensor, std::int64_t heads, std::int64_t N, int rows,
                                          int sections) {
  constexpr std::uint64_t row_bytes = sizeof(Element) * d;
  return workbook::cuda::tensor_map(tensor, {64, std::uint64_t(N), d / 64, std::uint64_t(heads * N + 1)},
                                    {row_bytes, 128, row_bytes}, {64, std::uint32_t(rows), std::uint32_t(sections), 1},
                                    Swizzle::bytes_128, std::uint64_t(N) * row_bytes);
}

}  // namespace
}  // namespace ch19
