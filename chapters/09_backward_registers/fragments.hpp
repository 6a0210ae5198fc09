// Chapter 9, given: swizzled tiles in shared memory, the ldmatrix loads of chapter 8, and the fragments of mma.m16n8k16
// for 32 rows at a time.
//
// Source: PTX ISA, sections "Matrix fragments for mma.m16n8k16" and "ldmatrix".
#pragma once

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "common/cuda/kernel.hpp"

namespace ch09 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; backward_registers_bf16.cu compiles the kernels again, with bf16

using workbook::cuda::cp_async_16, workbook::cuda::cp_async_commit_group, workbook::cuda::cp_async_wait_group;
using workbook::cuda::cvt_rn_x2, workbook::cuda::exp2_ftz, workbook::cuda::ldmatrix_x4_trans,
    workbook::cuda::mma_m16n8k16, workbook::cuda::stmatrix_x4;

/// Part: a lane's four floats of an accumulator (16, 8). Operand: a lane's eight elements of a left operand (16, 16),
/// or of a right operand (16, 16), which is two (16, 8) side by side.
using Part = workbook::cuda::Fragment<float, 4>;
using Operand = workbook::cuda::Fragment<Element, 4>;

/// A lane's fragments of 32 rows, which are two row tiles of 16. Result: accumulators of 8·parts columns, C[i][j] is
/// Part j of row tile i. Operands: the same matrix, rounded, as left operands; A[i][k] is operand k of row tile i.
template <int parts>
using Result = Part[2][parts];
template <int parts>
using Operands = Operand[2][parts / 2];

/// The row and the column of a lane's element e within the accumulator (16, 8).
struct Position {
  int row, column;
};
__device__ __forceinline__ Position position_in_part(int lane, int e) {
  return {lane / 4 + e / 2 * 8, lane % 4 * 2 + e % 2};
}

/// The address of chunk `chunk` of a row, 8 elements or 16 bytes. Chunks are permuted within 128 bytes (exercise 8.2).
template <int rows, int columns>
__device__ __forceinline__ Element* swizzled(Element (&tile)[rows][columns], int row, int chunk) {
  constexpr int side_by_side = columns < 64 ? 64 / columns : 1, chunks = 8 / side_by_side;
  return &tile[row][(chunk ^ row / side_by_side % chunks) * 8];
}

/// A (16, 16): 16 rows and 16 columns of the tile, from this row and column on.
template <int rows, int columns>
__device__ __forceinline__ void load_A(Operand& A, Element (&tile)[rows][columns], int row, int column) {
  const int lane = threadIdx.x % 32;
  workbook::cuda::ldmatrix_x4(A, swizzled(tile, row + lane % 16, column / 8 + lane / 16));
}
/// B (16, 16), whose columns are 16 rows of the tile. B[0] and B[1] hold its columns 0 to 7, B[2] and B[3] columns 8 to
/// 15.
template <int rows, int columns>
__device__ __forceinline__ void load_B_by_columns(Operand& B, Element (&tile)[rows][columns], int row, int column) {
  const int lane = threadIdx.x % 32;
  workbook::cuda::ldmatrix_x4(B, swizzled(tile, row + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2));
}
/// B (16, 16), whose rows are 16 rows of the tile. Its columns are in the same registers.
template <int rows, int columns>
__device__ __forceinline__ void load_B_by_rows(Operand& B, Element (&tile)[rows][columns], int row, int column) {
  const int lane = threadIdx.x % 32;
  workbook::cuda::ldmatrix_x4_trans(B, swizzled(tile, row + lane % 16, column / 8 + lane / 16));
}

/// C += A B for 16 columns of C, from column 16·j on: A (32, 16) is two row tiles, B is (16, 16).
template <int parts>
__device__ __forceinline__ void multiply_16(Result<parts>& C, int j, const Operand& upper, const Operand& lower,
                                            const Operand& B) {
  mma_m16n8k16(C[0][2 * j], upper, B[0], B[1]);
  mma_m16n8k16(C[0][2 * j + 1], upper, B[2], B[3]);
  mma_m16n8k16(C[1][2 * j], lower, B[0], B[1]);
  mma_m16n8k16(C[1][2 * j + 1], lower, B[2], B[3]);
}

template <int parts>
__device__ __forceinline__ void clear(Result<parts>& C) {
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (Part& part : C[i]) part.fill(0);
}

}  // namespace
}  // namespace ch09
