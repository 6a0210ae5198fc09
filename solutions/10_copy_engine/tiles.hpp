// Chapter 10: tiles that TMA loads. The tensor map, the TMA load of a tile by one thread, the layout of the tile in
// shared memory, and the ldmatrix loads from it.
//
// Source: PTX ISA, sections "Tensor copy", "Tensor: Swizzling modes" and "ldmatrix"; CUDA Driver API,
// "cuTensorMapEncodeTiled".
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"
#include "common/cuda/ptx_hopper.hpp"

namespace ch10 {
namespace {

using workbook::cuda::cp_async_bulk_tensor_load, workbook::cuda::mbarrier_arrive_expect_tx;
using workbook::cuda::Fragment, workbook::cuda::Mbarrier, workbook::cuda::Swizzle, workbook::cuda::TensorMap;

// TMA swizzles rows of 32, 64 or 128 bytes. So a tile (rows, d) in shared memory consists of sections of 64 columns,
// 128 bytes per row: one section for d = 64; for d = 128 two, one after the other. For d = 32 a row has 64 bytes. A
// tile starts at a multiple of 1024 bytes, because the swizzle is a function of the address.
template <int d>
constexpr int section_columns = d < 64 ? d : 64;
template <class Element, int rows, int d>
using Tile = Element[d / section_columns<d>][rows][section_columns<d>];

// TODO(10.2) tile_map: the tensor map of a tensor (heads, N, d). It has four dimensions, the fastest first: columns of
// a section, N, sections, heads. Its box is a Tile<Element, rows, d>. load_tile, called by one thread: arrives at
// `full` with the number of bytes to expect, and issues the load of a tile, from row first_row of a head on (about 9
// lines).
// STUB: template <class Element, int rows, int d>
// STUB: TensorMap tile_map(const Element* tensor, std::int64_t heads, std::int64_t N) {
// STUB:   WORKBOOK_TODO(10.2);
// STUB: }
// STUB: template <class AnyTile>
// STUB: __device__ __forceinline__ void load_tile(AnyTile& tile, const TensorMap& tensor, Mbarrier& full,
// STUB:                                           int first_row, int head) {
// STUB:   WORKBOOK_TODO(10.2);
// STUB: }
// BEGIN 10.2
template <class Element, int rows, int d>
TensorMap tile_map(const Element* tensor, std::int64_t heads, std::int64_t N) {
  constexpr int columns = section_columns<d>, sections = d / columns, bytes = sizeof(Element);
  const std::uint64_t head_stride = std::uint64_t(N) * d * bytes;
  return workbook::cuda::tensor_map(tensor, {columns, std::uint64_t(N), sections, std::uint64_t(heads)},
                                    {d * bytes, columns * bytes, head_stride}, {columns, rows, sections, 1},
                                    columns == 32 ? Swizzle::bytes_64 : Swizzle::bytes_128);
}
template <class AnyTile>
__device__ __forceinline__ void load_tile(AnyTile& tile, const TensorMap& tensor, Mbarrier& full, int first_row,
                                          int head) {
  mbarrier_arrive_expect_tx(full, sizeof tile);
  cp_async_bulk_tensor_load(tile, tensor, full, 0, first_row, 0, head);
}
// END 10.2

// A chunk is 8 elements of a row, 16 bytes. A section has 8 chunks of a row, or 4 for d = 32. TMA stores chunk c of row
// r of a section in slot c ^ r % 8 of the row, or in slot c ^ r / 2 % 4 if rows have 64 bytes. That is chapter 8's
// swizzle within each section.
//
// TODO(10.3) The address of the first element of chunk `chunk`, 0 to d / 8 - 1, of a row of the tile (about 3 lines).
// STUB: template <class Element, int sections, int rows, int columns>
// STUB: __device__ __forceinline__ Element* swizzled(Element (&tile)[sections][rows][columns], int row, int chunk) {
// STUB:   WORKBOOK_TODO(10.3);
// STUB: }
// BEGIN 10.3
template <class Element, int sections, int rows, int columns>
__device__ __forceinline__ Element* swizzled(Element (&tile)[sections][rows][columns], int row, int chunk) {
  constexpr int chunks = columns / 8, rows_in_128_bytes = 64 / columns;
  const int slot = (chunk ^ row / rows_in_128_bytes) % chunks;
  return &tile[chunk / chunks][row][slot * 8];
}
// END 10.3

// Chapter 8's three loads: A (16, 16), the tile from `row` and `column` on; B whose columns are 16 rows of the tile;
// and B whose rows are 16 rows of the tile.
template <class Element, int sections, int rows, int columns>
__device__ __forceinline__ void load_A(Fragment<Element, 4>& A, Element (&tile)[sections][rows][columns], int row,
                                       int column) {
  const int lane = threadIdx.x % 32;
  workbook::cuda::ldmatrix_x4(A, swizzled(tile, row + lane % 16, column / 8 + lane / 16));
}
template <class Element, int sections, int rows, int columns>
__device__ __forceinline__ void load_B_by_columns(Fragment<Element, 4>& B, Element (&tile)[sections][rows][columns],
                                                  int row, int column) {
  const int lane = threadIdx.x % 32;
  workbook::cuda::ldmatrix_x4(B, swizzled(tile, row + lane / 16 * 8 + lane % 8, column / 8 + lane / 8 % 2));
}
template <class Element, int sections, int rows, int columns>
__device__ __forceinline__ void load_B_by_rows(Fragment<Element, 4>& B, Element (&tile)[sections][rows][columns],
                                               int row, int column) {
  const int lane = threadIdx.x % 32;
  workbook::cuda::ldmatrix_x4_trans(B, swizzled(tile, row + lane % 16, column / 8 + lane / 16));
}

}  // namespace
}  // namespace ch10
