// Chapter 12: where the matrices of a product of 8-bit operands lie, in shared memory and in registers.
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": "Register Fragments", "Shared Memory Matrix
// Layout", "Matrix Descriptor".
#pragma once

#include "fp8.hpp"

namespace ch12 {
namespace {

using workbook::cuda::Fragment, workbook::cuda::Swizzle, workbook::cuda::wgmma_matrix, workbook::cuda::WgmmaMatrix;

/// A tile of e4m3 in shared memory: rows of 64 or 128 bytes, each of one swizzle. So no tile has sections, as chapter
/// 11's have for d = 128. Of Q (64, d), of K (128, d), of V (d, 128).
template <int rows, int columns>
using Tile = E4m3[rows][columns];
template <int columns>
constexpr Swizzle swizzle_of = columns == 128 ? Swizzle::bytes_128 : Swizzle::bytes_64;
/// O's tile is chapter 11's, of fp16.
template <int d>
using OutputTile = half[d / 64][64][64];
constexpr int pattern_bytes = 1024;  // of the larger swizzle

/// Where an element lies in its matrix: chapter 11's place_in_D.
struct Place {
  int row, column;
};
__device__ inline Place place_in_D(int thread, int e) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + e / 2 % 2 * 8, e / 4 * 8 + lane % 4 * 2 + e % 2};
}

// P comes out of a product as D and goes into the next as A. With 16 bits the two lie alike. With 8 bits they do not:
//
//   of 16 keys, thread 1 of a quad holds, of D:   keys 2 3 and 10 11         two neighbours of each 8 columns
//                          and of A it holds:     places 4 5 6 7             four neighbours in one register
//
// But a product sums over all of them, and a sum has no order: what A calls place 4 may be key 2, if B's row 4 is V's
// row 2 too. So P stays where it is, and V's keys are put in that order once, when it is transposed.
//
// TODO(12.2) Which key of a tile lies at a place, from 0 to 127: places 4q to 4q + 3 of each 16 are the keys that
// thread q of a quad holds, in their order. Then P as A, four registers for each 32 keys: registers 0 and 2 are this
// lane's first row, 1 and 3 its second one; 2 and 3 are 16 places further. S[4k] to S[4k + 3] are keys 8k + 2q and the
// next in the first row, then in the second (about 9 lines).
// STUB: __device__ inline int key_at(int place) {
// STUB:   WORKBOOK_TODO(12.2);
// STUB: }
// STUB: template <int parts, int n>
// STUB: __device__ __forceinline__ void round_P(Fragment<E4m3, 4> (&P)[parts], const Fragment<float, n>& S) {
// STUB:   WORKBOOK_TODO(12.2);
// STUB: }
// BEGIN 12.2
__device__ inline int key_at(int place) {
  return place / 16 * 16 + place / 2 % 2 * 8 + place / 4 % 4 * 2 + place % 2;
}
template <int parts, int n>
__device__ __forceinline__ void round_P(Fragment<E4m3, 4> (&P)[parts], const Fragment<float, n>& S) {
#pragma unroll
  for (int j = 0; j < parts; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int left = 16 * j + i / 2 * 8 + i % 2 * 2, right = left + 4;  // the next 8 columns
      P[j][i] = workbook::cuda::cvt_rn_satfinite_e4m3x4(S[left], S[left + 1], S[right], S[right + 1]);
    }
}
// END 12.2

/// The 32 columns from 32c on of a tile, K-major, as A (rows, 32) or B (32, rows). They are 32 bytes of each row, and
/// eight rows are a pattern.
template <int rows, int columns>
__device__ __forceinline__ WgmmaMatrix thirty_two_columns(const E4m3 (&tile)[rows][columns], int c) {
  return wgmma_matrix(tile, 0, 8 * columns, swizzle_of<columns>) + 32 * c;
}

}  // namespace
}  // namespace ch12
