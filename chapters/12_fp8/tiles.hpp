// Chapter 12: the layout of wgmma's 8-bit matrices, in shared memory and in registers.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Register Fragments", "Shared Memory Matrix
// Layout", "Matrix Descriptor".
#pragma once

#include "fp8.hpp"

namespace ch12 {
namespace {

using workbook::cuda::Fragment, workbook::cuda::Swizzle, workbook::cuda::wgmma_matrix, workbook::cuda::WgmmaMatrix;

/// A tile of e4m3 in shared memory. A row has 64 or 128 bytes, the width of one swizzle pattern. So a tile has no
/// sections, unlike chapter 11's for d = 128. Q is (64, d), K (128, d), V (d, 128).
template <int rows, int columns>
using Tile = E4m3[rows][columns];
template <int columns>
constexpr Swizzle swizzle_for = columns == 128 ? Swizzle::bytes_128 : Swizzle::bytes_64;
/// The tile of O has the layout of chapter 11, in fp16.
template <int d>
using OutputTile = half[d / 64][64][64];
constexpr int pattern_bytes = 1024;  // of the wider swizzle

/// The coordinates of an element in its matrix, as in chapter 11.
struct Coordinates {
  int row, column;
};
__device__ inline Coordinates coordinates_in_D(int thread, int e) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + e / 2 % 2 * 8, e / 4 * 8 + lane % 4 * 2 + e % 2};
}

// The first matmul leaves P as an accumulator, and the second one needs it as operand A. With 16-bit elements the two
// register layouts agree. With 8-bit elements they differ. Of 16 keys, lane 1 of a quad
//
//   holds in the accumulator:   keys 2 3 and 10 11     two adjacent columns of each 8
//   must hold in A:             k = 4 5 6 7            four adjacent columns in one register
//
// But the matmul sums over k, so the order of k is free: column 4 of A may be key 2, if row 4 of B is row 2 of V. So
// P stays in its registers, and the transpose of V puts V's keys in this order once.
//
// TODO(12.2) key_at: the key of a tile at index k of the summed dimension, 0 to 127. Of each 16, k = 4q to 4q + 3 are
// the keys that lane q of a quad holds, in their order. round_P: P as A, four registers for each 32 keys. Registers 0
// and 2 are this lane's first row, 1 and 3 its second row; 2 and 3 are 16 columns further on. S[4k] to S[4k + 3] are
// keys 8k + 2q and 8k + 2q + 1 in the first row, then in the second row (about 9 lines).
// BEGIN 12.2
__device__ inline int key_at(int k) {
  WORKBOOK_TODO(12.2);
}
template <int parts, int n>
__device__ __forceinline__ void round_P(Fragment<E4m3, 4> (&P)[parts], const Fragment<float, n>& S) {
  WORKBOOK_TODO(12.2);
}
// END 12.2

/// The descriptor of columns 32c to 32c + 31 of a tile, K-major, as A (rows, 32) or B (32, rows). They are 32 bytes of
/// each row. Eight rows are one swizzle pattern.
template <int rows, int columns>
__device__ __forceinline__ WgmmaMatrix K_major_descriptor(const E4m3 (&tile)[rows][columns], int c) {
  return wgmma_matrix(tile, 0, 8 * columns, swizzle_for<columns>) + 32 * c;
}

}  // namespace
}  // namespace ch12
