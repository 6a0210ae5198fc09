// Chapter 17: rotary position embedding. An element of a row of Q or K and the one half a head behind it are a pair,
// which is turned by an angle that grows with the row's position. What is left of two positions in a product of such
// rows is their difference.
//
// Source: Su et al. 2021 (RoFormer), section 3.2 and 3.4.2; the pairs are those of GPT-NeoX and Llama.
// Test it: ./workbook test 17.4
#pragma once

#include <cstdint>

#include "common/cuda/dispatch.hpp"
#include "fragments.hpp"
#include "rope_dropout.hpp"

namespace ch17 {
namespace {

/// Cosine and sine of the angle of pair c, 0 to d/2 - 1, at this position, which may be negative.
template <int d>
__device__ __forceinline__ float2 rotation_of(int position, int c) {
  // TODO(17.4) The angle is position·10000^(-2c/d): in double, or a position of many thousands leaves its fraction
  // without digits (2 lines).
  // BEGIN 17.4
  const double angle = position * pow(10000.0, -2.0 * c / d);
  return {float(cos(angle)), float(sin(angle))};
  // END 17.4
}

// The table of all rotations has max(Nq, Nk) rows of d/2 pairs. The last query and the last key stand in its last row,
// at position Nk - 1.

/// Fills the table, a thread for each of `count` pairs.
template <int d>
__global__ void fill_table(float2* __restrict__ table,  // (rows, d / 2)
                           std::int64_t count, int first_position) {
  const std::int64_t at = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < count) table[at] = rotation_of<d>(first_position + int(at / (d / 2)), int(at % (d / 2)));
}

/// Starts to fill the table of a call that rotates.
template <int d>
void make_table(const workbook::Setting& call, float2* table) {
  if (!call.mask.rope) return;
  const std::int64_t rows = table_rows(call.shape), count = rows * (d / 2);
  workbook::cuda::launch(fill_table<d>, workbook::cuda::grid_of((count + 127) / 128, "max(Nq, Nk)·d/2"), dim3(128), 0,
                         table, count, int(call.shape.Nk - rows));
}

/// Turns eight pairs: element k of `left` and element k of `right`, which is half a head behind it, by by[k]. They are
/// rounded to Element.
template <class Element>
__device__ __forceinline__ void rotate_chunks(uint4& left, uint4& right, const float2* __restrict__ by) {
  Element *x = reinterpret_cast<Element*>(&left), *y = reinterpret_cast<Element*>(&right);
  const float4* two = reinterpret_cast<const float4*>(by);  // of elements 2k and 2k + 1: cosine, sine, cosine, sine
  // TODO(17.5) (x, y) becomes (x·cos - y·sin, y·cos + x·sin), in float. Take 16 bytes of the table at a time (about 8
  // lines).
  // BEGIN 17.5
#pragma unroll
  for (int k = 0; k < 8; k += 2) {
    const float4 semaphores = two[k / 2];
    const float x0 = float(x[k]), x1 = float(x[k + 1]), y0 = float(y[k]), y1 = float(y[k + 1]);
    x[k] = Element(x0 * semaphores.x - y0 * semaphores.y), x[k + 1] = Element(x1 * semaphores.z - y1 * semaphores.w);
    y[k] = Element(y0 * semaphores.x + x0 * semaphores.y), y[k + 1] = Element(y1 * semaphores.z + x1 * semaphores.w);
  }
  // END 17.5
}

/// What thread number `thread` has of a tile: of every so many rows two chunks, half a head apart. d / 16 threads share
/// a row.
template <int d>
struct OwnChunks {
  int first_row, chunk;
  static constexpr int threads_of_row = d / 16, apart = d / 16;
  __device__ explicit OwnChunks(int thread) : first_row(thread / threads_of_row), chunk(thread % threads_of_row) {
    // Eight neighbours copy from 16·8 / d rows. Where rows are narrow, these have to be four rows apart: then their
    // halves lie in disjoint groups of banks. So two bits of the row's number change places.
    constexpr int low = d == 64 ? 0 : 1, high = 2;
    const int flip = d < 128 ? (first_row >> low ^ first_row >> high) & 1 : 0;
    first_row ^= flip << low | flip << high;
  }
};

/// Rotates what this thread has copied of a tile (load_tile), once it is there: of the first `rows` rows, if there
/// is a table. The rotations of the tile's first row are in row `place` of it.
template <int threads, class Element, int tile_rows, int d>
__device__ __forceinline__ void rotate_tile(Element (&tile)[tile_rows][d], const float2* __restrict__ table,
                                            std::int64_t place, int rows, int thread) {
  if (table == nullptr) return;
  const OwnChunks<d> own(thread);
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / own.threads_of_row) {
    const int row = own.first_row + i;
    if (row >= rows) continue;  // zeros stay zeros
    uint4& left = *reinterpret_cast<uint4*>(swizzled(tile, row, own.chunk));
    uint4& right = *reinterpret_cast<uint4*>(swizzled(tile, row, own.chunk + own.apart));
    uint4 x = left, y = right;
    rotate_chunks<Element>(x, y, table + (place + row) * (d / 2) + 8 * own.chunk);
    left = x, right = y;
  }
}

}  // namespace
}  // namespace ch17
