// Chapter 16, given: the launches before a pass. Documents, classes of blocks, and lists of them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "blocks.hpp"
#include "common/attention/setting.hpp"

namespace ch16 {
namespace {

/// The document of each token. starts: (documents + 1), where each begins.
__global__ void number_tokens(const int* __restrict__ starts, int* __restrict__ document, int tokens) {
  const std::int64_t token = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (token >= tokens) return;
  int number = 0;
  while (starts[number + 1] <= token) ++number;
  document[token] = number;
}

/// The classes of all blocks, a warp for each.
template <int Br, int Bc, class Predicate>
__global__ void class_blocks(Pairs<Predicate> pairs, BlockTable table) {
  const std::int64_t block = (std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (block >= std::int64_t(table.rows) * table.columns) return;
  const BlockClass own = class_of<Br, Bc>(pairs, int(block / table.columns) * Br, int(block % table.columns) * Bc);
  if (threadIdx.x % 32 == 0) table.classes[block] = own;
}

/// The lists of each row of blocks, or of each column: a warp for each line.
__global__ void list_lines(BlockTable table, bool of_columns, BlockLists lists) {
  const int number = int(blockIdx.x);
  const Line line = line_of(table, number, of_columns);
  const std::int64_t place = std::int64_t(number) * line.length;
  int *const partial = lists.partial + place, *const full = lists.full + place;
  const int partials = list_blocks(line.first, line.step, line.length, BlockClass::partial, partial);
  const int fulls = list_blocks(line.first, line.step, line.length, BlockClass::full, full);
  if (threadIdx.x == 0) lists.partial_count[number] = partials, lists.full_count[number] = fulls;
}

/// Lists for blocks of Br queries and Bc keys: of rows, or of columns.
template <int Br, int Bc, class Predicate>
BlockTable make_lists(const Pairs<Predicate>& pairs, const Scratch& scratch, bool of_columns) {
  using workbook::cuda::grid_of, workbook::cuda::launch;
  const BlockTable table{scratch.classes, (pairs.Nq + Br - 1) / Br, (pairs.Nk + Bc - 1) / Bc};
  launch(class_blocks<Br, Bc, Predicate>,
         grid_of((std::int64_t(table.rows) * table.columns + 3) / 4, "⌈Nq/Br⌉·⌈Nk/Bc⌉"), dim3(128), 0, pairs, table);
  launch(list_lines, dim3(unsigned(of_columns ? table.columns : table.rows)), dim3(32), 0, table, of_columns,
         scratch.lists);
  return table;
}

/// take(pairs): those that the call's mask lets count. starts: of its documents.
template <class Take>
void with_pairs(const workbook::Setting& call, const int* starts, int* documents, const Take& take) {
  using workbook::Mask;
  const int Nq = int(call.shape.Nq), Nk = int(call.shape.Nk);
  // No distance is that large: what is more stands for the same.
  const auto within = [&](std::int64_t keys) { return int(std::min(keys, call.shape.Nq + call.shape.Nk)); };
  switch (call.mask.kind) {
    case Mask::documents:
      if (starts == nullptr) break;
      workbook::cuda::launch(number_tokens, dim3(unsigned(Nk + 127) / 128), dim3(128), 0, starts, documents, Nk);
      return take(Pairs<Documents>{{documents}, Nq, Nk});
    case Mask::strided:
      return take(Pairs<Strided>{{within(call.mask.left), within(call.mask.right)}, Nq, Nk});
    case Mask::prefix:
      return take(Pairs<Prefix>{{std::min(Nk, within(call.mask.left))}, Nq, Nk});
    case Mask::none:
      return take(Pairs<Prefix>{{Nk}, Nq, Nk});
    default:
      break;
  }
  take(Pairs<Prefix>{{0}, Nq, Nk});
}

}  // namespace
}  // namespace ch16
