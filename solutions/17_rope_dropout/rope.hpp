// Chapter 17: rotary position embedding. Elements c and c + d/2 of a row of Q or K are a pair, which is rotated by an
// angle proportional to the row's position. The dot product of two rotated rows depends only on the difference of their
// positions.
//
// Source: Su et al. 2021 (RoFormer), sections 3.2 and 3.4.2; pairs half a head apart as in GPT-NeoX and Llama.
// Test it: ./workbook test 17.4
#pragma once

#include <cstdint>

#include "14_grouped_queries/fragments.hpp"
#include "common/cuda/dispatch.hpp"
#include "rope_dropout.hpp"

namespace ch17 {
namespace {

using namespace ch14;  // fragments.hpp

/// Cosine and sine of the angle of pair c, 0 to d/2 - 1, at this position. The position may be negative.
template <int d>
__device__ __forceinline__ float2 cos_sin(int position, int c) {
  // TODO(17.4) The angle is position·10000^(-2c/d). Compute it in double: at positions of many thousands, a float has
  // few digits left for the fraction (2 lines).
  // BEGIN 17.4
  const double angle = position * pow(10000.0, -2.0 * c / d);
  return {float(cos(angle)), float(sin(angle))};
  // END 17.4
}

// The table has max(Nq, Nk) rows of d/2 rotations (cosine, sine). Its last row, position Nk - 1, belongs to the last
// query and the last key.

/// Fills the table: one thread for each of its `count` rotations.
template <int d>
__global__ void fill_table(float2* __restrict__ table,  // (rows, d / 2)
                           std::int64_t count, int first_position) {
  const std::int64_t index = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index < count) table[index] = cos_sin<d>(first_position + int(index / (d / 2)), int(index % (d / 2)));
}

/// Launches fill_table if the call uses RoPE.
template <int d>
void make_table(const workbook::Setting& call, float2* table) {
  if (!call.mask.rope) return;
  const std::int64_t rows = table_rows(call.shape), count = rows * (d / 2);
  workbook::cuda::launch(fill_table<d>, workbook::cuda::grid_of((count + 127) / 128, "max(Nq, Nk)·d/2"), dim3(128), 0,
                         table, count, int(call.shape.Nk - rows));
}

/// Rotates eight pairs: element k of `left` is x and element k of `right`, d/2 columns further on, is y. rotations[k]
/// is the cosine and sine of their angle. The results are rounded to Element.
template <class Element>
__device__ __forceinline__ void rotate_chunks(uint4& left, uint4& right, const float2* __restrict__ rotations) {
  Element *x = reinterpret_cast<Element*>(&left), *y = reinterpret_cast<Element*>(&right);
  // vectors[i] is cosine, sine of pair 2i, then cosine, sine of pair 2i + 1.
  const float4* vectors = reinterpret_cast<const float4*>(rotations);
  // TODO(17.5) (x, y) becomes (x·cos - y·sin, y·cos + x·sin), computed in fp32. Read the rotations 16 bytes at a time
  // (about 8 lines).
  // BEGIN 17.5
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    const float4 rotation = vectors[k / 2];
    const float x0 = float(x[k]), x1 = float(x[k + 1]), y0 = float(y[k]), y1 = float(y[k + 1]);
    x[k] = Element(x0 * rotation.x - y0 * rotation.y), x[k + 1] = Element(x1 * rotation.z - y1 * rotation.w);
    y[k] = Element(y0 * rotation.x + x0 * rotation.y), y[k + 1] = Element(y1 * rotation.z + x1 * rotation.w);
  }
  // END 17.5
}

/// The chunks of a tile that thread `thread` copies and rotates: two chunks per row, `partner_offset` chunks apart,
/// which is half a head. threads_per_row threads share a row.
template <int d>
struct ThreadChunks {
  int first_row, chunk;
  static constexpr int threads_per_row = d / 16, partner_offset = d / 16;
  __device__ explicit ThreadChunks(int thread) : first_row(thread / threads_per_row), chunk(thread % threads_per_row) {
    // Eight adjacent threads copy chunks of 128 / d rows. For d < 128 these must include rows that are four apart,
    // whose halves are in disjoint groups of banks. So two bits of the row index are swapped.
    constexpr int low = d == 64 ? 0 : 1, high = 2;
    const int flip = d < 128 ? (first_row >> low ^ first_row >> high) & 1 : 0;
    first_row ^= flip << low | flip << high;
  }
};

/// Rotates the chunks that this thread copied by load_tile, in the first `rows` rows of the tile. The thread must have
/// waited for its copies. Row `table_row` of the table has the rotations of the tile's first row; without a table
/// (nullptr) nothing is rotated.
template <int threads, class Element, int tile_rows, int d>
__device__ __forceinline__ void rotate_tile(Element (&tile)[tile_rows][d], const float2* __restrict__ table,
                                            std::int64_t table_row, int rows, int thread) {
  if (table == nullptr) return;
  const ThreadChunks<d> chunks(thread);
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / chunks.threads_per_row) {
    const int row = chunks.first_row + i;
    if (row >= rows) continue;  // past the end: zeros, and the table has no such row
    uint4& left = *reinterpret_cast<uint4*>(swizzled(tile, row, chunks.chunk));
    uint4& right = *reinterpret_cast<uint4*>(swizzled(tile, row, chunks.chunk + chunks.partner_offset));
    uint4 x = left, y = right;
    rotate_chunks<Element>(x, y, table + (table_row + row) * (d / 2) + 8 * chunks.chunk);
    left = x, right = y;
  }
}

}  // namespace
}  // namespace ch17
