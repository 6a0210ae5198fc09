// Chapter 12, rounding: what a block of threads does with 128 rows of Q, K or V, from fp16 to e4m3.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.3: block quantization and incoherent processing.
#pragma once

#include <cmath>
#include <cstdint>

#include "fp8.hpp"
#include "tiles.hpp"

namespace ch12 {
namespace {

using workbook::cuda::cvt_rn_satfinite_e4m3x4;

constexpr unsigned all_lanes = 0xffffffff;
constexpr int rounding_threads = 256, rounding_warps = rounding_threads / 32;
constexpr float largest_e4m3 = 448;

/// What a thread has of 128 rows: d / 64 parts of four rows and eight columns. Neighbouring lanes have the same rows:
/// d / 8 of them have all columns.
template <int d>
struct Parts {
  static constexpr int count = block_rows * d / (rounding_threads * 4 * 8);
  float x[count][4][8];

  static __device__ int first_column(int i) { return (threadIdx.x + rounding_threads * i) % (d / 8) * 8; }
  /// Its rows are those of keys that lie side by side where V is transposed: places 4·word to 4·word + 3.
  static __device__ int word(int i) { return (threadIdx.x + rounding_threads * i) / (d / 8); }
  static __device__ int row(int i, int r) { return key_at(4 * word(i) + r); }
};

template <int d>
struct alignas(128) RoundingShared {
  float largest[rounding_warps];
  std::uint32_t words[d][block_rows / 4];  // V transposed: four keys of a column each
  SHARED_LAYOUT(RoundingShared, largest, words);
};

/// rows (N, d) of one head, from row `first` on: those that do not exist become zeros.
template <int d>
__device__ __forceinline__ void load_parts(Parts<d>& parts, const half* rows, int first, int N) {
#pragma unroll
  for (int i = 0; i < Parts<d>::count; ++i) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = first + Parts<d>::row(i, r);
      uint4 eight = {0, 0, 0, 0};
      if (row < N) eight = *reinterpret_cast<const uint4*>(rows + std::int64_t(row) * d + Parts<d>::first_column(i));
      const half* elements = reinterpret_cast<const half*>(&eight);
#pragma unroll
      for (int c = 0; c < 8; ++c) parts.x[i][r][c] = __half2float(elements[c]);
    }
  }
}

// A scale is a power of two. To divide by it is exact, for it changes no mantissa, and so is to multiply by it again; a
// scale that is not would lose as much. x = 300 has the scale 1, for 300 <= 448, and x = 500 the scale 2.
//
// TODO(12.1) The least power of two with which `largest` is at most 448 after the division; 1 for 0. frexpf(x, &e)
// gives f in [1/2, 1) with x = f·2^e, ldexpf(1, e) is 2^e, and 448 is 7/8·2^9. Then the largest magnitude of all parts
// of the block, the same for every thread: over a thread's numbers, over its warp by shuffles, over the warps by
// smem.largest. fmaxf(x, NaN) is x (about 17 lines).
// STUB: __device__ inline float scale_of(float largest) {
// STUB:   WORKBOOK_TODO(12.1);
// STUB: }
// STUB: template <int d>
// STUB: __device__ __forceinline__ float largest_of_block(const Parts<d>& parts, RoundingShared<d>& smem) {
// STUB:   WORKBOOK_TODO(12.1);
// STUB: }
// BEGIN 12.1
__device__ inline float scale_of(float largest) {
  if (largest == 0) return 1;
  int exponent;
  const float fraction = frexpf(largest, &exponent);
  return ldexpf(1, fraction <= 0.875f ? exponent - 9 : exponent - 8);
}
template <int d>
__device__ __forceinline__ float largest_of_block(const Parts<d>& parts, RoundingShared<d>& smem) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < Parts<d>::count; ++i)
#pragma unroll
    for (int e = 0; e < 32; ++e) largest = fmaxf(largest, fabsf(parts.x[i][e / 8][e % 8]));
  for (int lanes = 16; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, lanes));
  if (threadIdx.x % 32 == 0) smem.largest[threadIdx.x / 32] = largest;
  __syncthreads();  // every warp's largest is there
  for (const float other : smem.largest) largest = fmaxf(largest, other);
  return largest;
}
// END 12.1

/// Whether the rotation turns the sign of a column before it mixes them: fixed, but without order.
__device__ inline bool turns_sign(int column) {
  const std::uint64_t signs = column < 64 ? 0xb5c0fbcfec4d3b2f : 0x59f111f1923f82a4;
  return signs >> column % 64 & 1;
}

// Hadamard's matrix of size d has 1 or -1 everywhere: H_2d = [H_d H_d; H_d -H_d]. To multiply a row x by it takes log2
// d steps instead of d² products: in the step of `distance` 1, 2, 4, … each x[c] and x[c + distance] become their sum
// and their difference, for those c that have not this bit. The first three steps are within a thread's eight columns,
// the others between lanes: column 8·k is lane k's first, of the d / 8 lanes that share a row.
template <int d>
__device__ __forceinline__ void rotate(Parts<d>& parts) {
  // TODO(12.8) In each row of each part: columns whose sign is turned; the steps in the thread; those between lanes, by
  // __shfl_xor_sync (about 17 lines).
  // BEGIN 12.8
#pragma unroll
  for (int i = 0; i < Parts<d>::count; ++i) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float(&x)[8] = parts.x[i][r];
#pragma unroll
      for (int c = 0; c < 8; ++c) x[c] = turns_sign(Parts<d>::first_column(i) + c) ? -x[c] : x[c];
#pragma unroll
      for (int distance = 1; distance < 8; distance *= 2)
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          if (c & distance) continue;
          const float sum = x[c] + x[c + distance], difference = x[c] - x[c + distance];
          x[c] = sum, x[c + distance] = difference;
        }
#pragma unroll
      for (int lanes = 1; lanes < d / 8; lanes *= 2)
#pragma unroll
        for (int c = 0; c < 8; ++c) {
          const float other = __shfl_xor_sync(all_lanes, x[c], lanes);
          x[c] = threadIdx.x & lanes ? other - x[c] : x[c] + other;
        }
    }
  }
  // END 12.8
}

/// Divided by the scale and rounded, to the rows of codes (N, d) from row `first` on, eight codes at a time.
template <int d>
__device__ __forceinline__ void store_rows(E4m3* codes, const Parts<d>& parts, float scale, int first, int N) {
  const float inverse = 1 / scale;
#pragma unroll
  for (int i = 0; i < Parts<d>::count; ++i) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = first + Parts<d>::row(i, r);
      const auto four = [&](int c) {
        const float(&x)[8] = parts.x[i][r];
        return cvt_rn_satfinite_e4m3x4(x[c] * inverse, x[c + 1] * inverse, x[c + 2] * inverse, x[c + 3] * inverse);
      };
      E4m3* const to = codes + std::int64_t(row) * d + Parts<d>::first_column(i);
      if (row < N) *reinterpret_cast<uint2*>(to) = {four(0), four(4)};
    }
  }
}

// V's codes are to lie in rows of keys: columns (d, keys), 128 keys of this block. A thread has four rows of V, and in
// each of its columns these are four neighbours of the new row, one register: a word. It goes through shared memory, so
// that a warp then stores the 32 words of a column, 128 bytes, at once. Word w of column c lies there at
// w ^ c / 8 · (256 / d), so that the lanes of a warp are in different banks.
template <int d>
__device__ __forceinline__ void store_columns(E4m3* columns, const Parts<d>& parts, float scale, std::int64_t keys,
                                              RoundingShared<d>& smem) {
  [[maybe_unused]] const float inverse = 1 / scale;
  [[maybe_unused]] const auto place = [](int column, int word) { return word ^ column / 8 * (256 / d); };
  // TODO(12.3) Each thread: the words of its parts to smem.words. When all are there, each warp takes columns and
  // stores a word a lane. `columns` begins at the block's first key; the next column is `keys` codes further (about 13
  // lines).
  // BEGIN 12.3
#pragma unroll
  for (int i = 0; i < Parts<d>::count; ++i)
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const auto x = [&](int r) { return parts.x[i][r][c] * inverse; };
      const int column = Parts<d>::first_column(i) + c;
      smem.words[column][place(column, Parts<d>::word(i))] = cvt_rn_satfinite_e4m3x4(x(0), x(1), x(2), x(3));
    }
  __syncthreads();  // all words are there
  for (int column = threadIdx.x / 32; column < d; column += rounding_warps)
    reinterpret_cast<std::uint32_t*>(columns + column * keys)[threadIdx.x % 32] =
        smem.words[column][place(column, threadIdx.x % 32)];
  // END 12.3
}

}  // namespace
}  // namespace ch12
