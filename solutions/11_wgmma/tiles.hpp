// Chapter 11: the layout of wgmma's matrices. In shared memory: tiles as TMA writes them, and the descriptors by which
// wgmma reads them. In registers: which thread holds which element of D.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Register Fragments", "Shared Memory Matrix
// Layout", "Matrix Descriptor".
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch11 {
namespace {

using workbook::cuda::Fragment, workbook::cuda::Swizzle, workbook::cuda::wgmma_matrix, workbook::cuda::WgmmaMatrix;

/// A tile (rows, d) of 16-bit elements in shared memory. A row of 64 elements has 128 bytes, the longest row that the
/// swizzle allows. A tile for d = 128 is therefore two sections: columns 0 to 63 of all rows, then columns 64 to 127.
/// Eight rows, 1024 bytes, form one swizzle pattern: chunk c (16 bytes) of row r is stored at chunk c ^ r % 8. Tiles
/// start at multiples of 1024 bytes, because TMA and the tensor cores both take r % 8 from the address.
template <class Element, int d, int rows>
using Tile = Element[d / 64][rows][64];
constexpr int pattern_bytes = 1024;

/// The tensor map of a tensor (heads, N, d), viewed as (heads, d / 64, N, 64). A box is (1, d / 64, rows, 64), the
/// layout of a Tile. Rows past N are filled with zeros, not with the next head.
template <int d, class Element>
workbook::cuda::TensorMap make_tensor_map(const Element* tensor, std::int64_t heads, std::int64_t N, int rows) {
  return workbook::cuda::tensor_map(tensor, {64, std::uint64_t(N), d / 64, std::uint64_t(heads)},
                                    {2 * d, 2 * 64, std::uint64_t(N) * d * 2}, {64, std::uint32_t(rows), d / 64, 1},
                                    Swizzle::bytes_128);
}

/// The coordinates of an element in its matrix.
struct Coordinates {
  int row, column;
};

// wgmma computes D (64, n) += A (64, 16) B (16, n). It reads a matrix in shared memory through a descriptor: the start
// address, the swizzle mode and two strides. `stride` is the distance from one group of eight rows to the next,
// `leading` the distance from one section to the next.
//
// K-major: the elements that are summed over are contiguous. A is columns 16c to 16c + 15 of the Q tile, B the same
// columns of the K tile. Within a section, the next 16 columns start 32 bytes further on. One wgmma stays within one
// section, so `leading` is not used:
//   wgmma_matrix(tile, 0, pattern_bytes, Swizzle::bytes_128)
// MN-major: the elements that are summed over are in consecutive rows, as in B = V. One wgmma reads all sections, and
// the next 16 keys start 16 rows further on:
//   wgmma_matrix(tile, bytes of a section, pattern_bytes, Swizzle::bytes_128)
// Both descriptors start where the array `tile` starts. A WgmmaMatrix + n starts n bytes further on.
//
// Warp w of the warpgroup holds rows 16w to 16w + 15 of D (64, n). Within these rows, each lane holds four elements of
// every 8 columns, laid out as chapter 8's D.
//
// TODO(11.1) The K-major descriptor of columns 16c to 16c + 15 of a tile; the MN-major descriptor of rows 16j to
// 16j + 15; the coordinates of element e of thread `thread` of the warpgroup (about 7 lines).
// STUB: template <class Element, int sections, int rows>
// STUB: __device__ __forceinline__ WgmmaMatrix K_major_descriptor(const Element (&tile)[sections][rows][64], int c) {
// STUB:   WORKBOOK_TODO(11.1);
// STUB: }
// STUB: template <class Element, int sections, int rows>
// STUB: __device__ __forceinline__ WgmmaMatrix MN_major_descriptor(const Element (&tile)[sections][rows][64], int j) {
// STUB:   WORKBOOK_TODO(11.1);
// STUB: }
// STUB: __device__ inline Coordinates coordinates_in_D(int thread, int e) {
// STUB:   WORKBOOK_TODO(11.1);
// STUB: }
// BEGIN 11.1
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
__device__ inline Coordinates coordinates_in_D(int thread, int e) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + e / 2 % 2 * 8, e / 4 * 8 + lane % 4 * 2 + e % 2};
}
// END 11.1

}  // namespace
}  // namespace ch11
