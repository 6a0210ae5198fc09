// Chapter 10: tiles as TMA brings them. What it is told of a tensor, how one thread starts the copy of a
// tile, where the tile's elements lie in shared memory, and how ldmatrix finds them there.
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

// TMA swizzles rows of 32, 64 or 128 bytes. So a tile (rows, d) lies in shared memory as sections of 64
// columns, 128 bytes a row: one with d = 64, two with d = 128, one behind the other. With d = 32 a row has 64 bytes.
// A tile begins at a multiple of 1024 bytes: the swizzle goes by bits of the address.
template <int d>
constexpr int section_columns = d < 64 ? d : 64;
template <class Element, int rows, int d>
using Tile = Element[d / section_columns<d>][rows][section_columns<d>];

// TODO(10.2) What TMA is told of a tensor (heads, N, d): it has four dimensions here, (columns of a
// section, N, sections, heads), the fastest first, and a box of it is a Tile<Element, rows, d>. And the copy of a tile,
// rows first_row and on of a head: this thread arrives at `full` and says how many bytes will come, and starts the copy
// (about 9 lines).
// BEGIN 10.2
template <class Element, int rows, int d>
TensorMap tile_map(const Element* tensor, std::int64_t heads, std::int64_t N) {
  WORKBOOK_TODO(10.2);
}
template <class AnyTile>
__device__ __forceinline__ void load_tile(AnyTile& tile, const TensorMap& tensor, Mbarrier& full,
                                          int first_row, int head) {
  WORKBOOK_TODO(10.2);
}
// END 10.2

// A chunk is 8 elements of a row, 16 bytes. A section keeps 8 chunks of a row, with d = 32 only 4. With rows of 128
// bytes TMA puts chunk c of row r of a section where chunk c ^ r % 8 would lie, with rows of 64 bytes where
// chunk c ^ r / 2 % 4 would lie. That is chapter 8's swizzle, section by section.
//
// TODO(10.3) The first element of chunk `chunk`, 0 to d / 8 - 1, of a row of the tile (about 3 lines).
// BEGIN 10.3
template <class Element, int sections, int rows, int columns>
__device__ __forceinline__ Element* swizzled(Element (&tile)[sections][rows][columns], int row, int chunk) {
  WORKBOOK_TODO(10.3);
}
// END 10.3

// Chapter 8's three loads: A (16, 16), which is the tile from this row and column on; B, of which the tile from there
// on has the columns as rows; B (16, 16), which is the tile from there on.
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
