// Chapter 16, given: the launches before a pass. They compute the document of each token, the class of each block, and
// the lists of blocks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "blocks.hpp"
#include "common/attention/setting.hpp"

namespace ch16 {
namespace {

/// The document of each token. starts: (documents + 1), where each document starts.
__global__ void number_tokens(const int* __restrict__ starts, int* __restrict__ document, int tokens) {
  const std::int64_t token = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (token >= tokens) return;
  int index = 0;
  while (starts[index + 1] <= token) ++index;
  document[token] = index;
}

/// The classes of all blocks, one warp per block.
template <int Br, int Bc, class MaskMod>
__global__ void classify_blocks(PairMask<MaskMod> mask, BlockTable table) {
  const std::int64_t block = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (block >= std::int64_t(table.rows) * table.columns) return;
  const BlockClass block_class =
      classify_block<Br, Bc>(mask, int(block / table.columns) * Br, int(block % table.columns) * Bc);
  if (threadIdx.x % 32 == 0) table.classes[block] = block_class;
}

/// The two lists of each row of blocks, or of each column if `transposed`: one warp per line.
__global__ void list_lines(BlockTable table, bool transposed, BlockLists lists) {
  const int index = int(blockIdx.x);
  const Line line = line_of(table, index, transposed);
  const std::int64_t offset = std::int64_t(index) * line.length;
  int *const partial = lists.partial + offset, *const full = lists.full + offset;
  const int partial_count = list_blocks(line.first, line.step, line.length, BlockClass::partial, partial);
  const int full_count = list_blocks(line.first, line.step, line.length, BlockClass::full, full);
  if (threadIdx.x == 0) lists.partial_count[index] = partial_count, lists.full_count[index] = full_count;
}

/// Classifies the blocks of Br queries and Bc keys, and lists them by row, or by column if `transposed`.
template <int Br, int Bc, class MaskMod>
BlockTable make_lists(const PairMask<MaskMod>& mask, const Scratch& scratch, bool transposed) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const BlockTable table{scratch.classes, (mask.Nq + Br - 1) / Br, (mask.Nk + Bc - 1) / Bc};
  launch(classify_blocks<Br, Bc, MaskMod>,
         grid_of((std::int64_t(table.rows) * table.columns + 3) / 4, "⌈Nq/Br⌉·⌈Nk/Bc⌉"), dim3(128), 0, mask, table);
  launch(list_lines, dim3(unsigned(transposed ? table.columns : table.rows)), dim3(32), 0, table, transposed,
         scratch.lists);
  return table;
}

/// Calls function(mask) with the mask of a call. starts: where each of its documents starts.
template <class Function>
void with_mask(const workbook::Setting& call, const int* starts, int* documents, const Function& function) {
  using workbook::Mask;
  const int Nq = int(call.shape.Nq), Nk = int(call.shape.Nk);
  // No distance exceeds Nq + Nk, so a larger number has the same effect, and this one fits into an int.
  const auto limited = [&](std::int64_t keys) { return int(std::min(keys, call.shape.Nq + call.shape.Nk)); };
  switch (call.mask.kind) {
    case Mask::documents:
      if (starts == nullptr) break;
      workbook::cuda::launch(number_tokens, dim3(unsigned(Nk + 127) / 128), dim3(128), 0, starts, documents, Nk);
      return function(PairMask<Documents>{{documents}, Nq, Nk});
    case Mask::strided:
      return function(PairMask<Strided>{{limited(call.mask.left), limited(call.mask.right)}, Nq, Nk});
    case Mask::prefix:
      return function(PairMask<Prefix>{{std::min(Nk, limited(call.mask.left))}, Nq, Nk});
    case Mask::none:
      return function(PairMask<Prefix>{{Nk}, Nq, Nk});
    default:
      break;
  }
  function(PairMask<Prefix>{{0}, Nq, Nk});
}

}  // namespace
}  // namespace ch16
