// Chapter 11: where the matrices of a product by four warps lie. In shared memory: tiles as TMA writes them
// and as wgmma is told of them. In registers: which thread holds which element of D.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Register Fragments", "Shared Memory Matrix
// Layout", "Matrix Descriptor".
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch11 {
namespace {

using workbook::cuda::Fragment, workbook::cuda::Swizzle, workbook::cuda::wgmma_matrix, workbook::cuda::WgmmaMatrix;

/// A tile (rows, d) in shared memory, of 16-bit elements. A row of 64 of them is 128 bytes, as long as the swizzle
/// allows. So a tile for d = 128 is two sections, one behind the other: columns 0 to 63 of all rows, then the rest.
/// Eight rows, 1024 bytes, are a pattern: the 16 bytes of chunk c of row r lie at chunk c ^ r % 8. Tiles begin at
/// multiples of 1024 bytes, since TMA and the tensor cores both take r % 8 from the address.
template <class Element, int d, int rows>
using Tile = Element[d / 64][rows][64];
constexpr int pattern_bytes = 1024;

/// A tensor (heads, N, d) for TMA: as (heads, d / 64, N, 64), of which a box is (1, d / 64, rows, 64), the
/// layout of a Tile. Beyond N there are zeros, not the next head.
template <int d, class Element>
workbook::cuda::TensorMap map_of(const Element* tensor, std::int64_t heads, std::int64_t N, int rows) {
  return workbook::cuda::tensor_map(tensor, {64, std::uint64_t(N), d / 64, std::uint64_t(heads)},
                                    {2 * d, 2 * 64, std::uint64_t(N) * d * 2}, {64, std::uint32_t(rows), d / 64, 1},
                                    Swizzle::bytes_128);
}

/// Where an element lies in its matrix.
struct Place {
  int row, column;
};

// wgmma computes D (64, n) += A (64, 16) B (16, n). It takes a matrix in shared memory by a descriptor: where it
// begins, how it is swizzled, and two distances. `stride` is from eight rows to the next eight, `leading` from one
// section of 64 columns to the next.
//
// K-major: the 16 elements that are multiplied with each other are side by side. A is columns 16c to 16c + 15 of Q's
// tile, B those of K's. The next 16 columns begin 32 bytes further in the same rows, until the section ends; a product
// stays within one section, so `leading` is not used.
//   wgmma_matrix(tile, 0, pattern_bytes, Swizzle::bytes_128)
// MN-major: they are one below the other, as in B = V. A product takes all sections, and the next 16 rows begin 16 rows
// further.
//   wgmma_matrix(tile, bytes of a section, pattern_bytes, Swizzle::bytes_128)
// Both begin where the array `tile` begins. A WgmmaMatrix + n begins n bytes further.
//
// Of D (64, n) warp w of the four has rows 16w to 16w + 15; there a lane holds of each 8 columns four elements, as in
// chapter 8's D.
//
// TODO(11.1) The columns 16c to 16c + 15 of a tile, K-major; the rows 16j to 16j + 15, MN-major; row and column of
// element e of thread number `thread` of the four warps (about 7 lines).
// STUB: template <class Element, int sections, int rows>
// STUB: __device__ __forceinline__ WgmmaMatrix sixteen_columns(const Element (&tile)[sections][rows][64], int c) {
// STUB:   WORKBOOK_TODO(11.1);
// STUB: }
// STUB: template <class Element, int sections, int rows>
// STUB: __device__ __forceinline__ WgmmaMatrix sixteen_rows(const Element (&tile)[sections][rows][64], int j) {
// STUB:   WORKBOOK_TODO(11.1);
// STUB: }
// STUB: __device__ inline Place place_in_D(int thread, int e) {
// STUB:   WORKBOOK_TODO(11.1);
// STUB: }
// BEGIN 11.1
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
__device__ inline Place place_in_D(int thread, int e) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + e / 2 % 2 * 8, e / 4 * 8 + lane % 4 * 2 + e % 2};
}
// END 11.1

}  // namespace
}  // namespace ch11
