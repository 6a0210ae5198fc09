// Chapter 12, rounding: the phases of a kernel that rounds fp16 to e4m3. One thread block processes one block of 128
// rows of Q, K or V.
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

/// A thread's elements of a block of 128 rows: d / 64 patches of four rows and eight columns. d / 8 adjacent lanes have
/// the same rows, and together all columns.
template <int d>
struct BlockFragment {
  static constexpr int count = block_rows * d / (rounding_threads * 4 * 8);
  float x[count][4][8];

  static __device__ int first_column(int i) { return (threadIdx.x + rounding_threads * i) % (d / 8) * 8; }
  /// The rows are keys that are adjacent where V is transposed: k = 4·word to 4·word + 3.
  static __device__ int word(int i) { return (threadIdx.x + rounding_threads * i) / (d / 8); }
  static __device__ int row(int i, int r) { return key_at(4 * word(i) + r); }
};

template <int d>
struct alignas(128) RoundingShared {
  float warp_max[rounding_warps];
  std::uint32_t words[d][block_rows / 4];  // V transposed: a word is four keys of a column
  SHARED_LAYOUT(RoundingShared, warp_max, words);
};

/// Loads a block of `rows` (N, d) of one head, from row `first` on. Rows past N become zeros.
template <int d>
__device__ __forceinline__ void load_fragment(BlockFragment<d>& fragment, const half* rows, int first, int N) {
#pragma unroll
  for (int i = 0; i < BlockFragment<d>::count; ++i) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = first + fragment.row(i, r);
      uint4 vector = {0, 0, 0, 0};
      if (row < N) vector = *reinterpret_cast<const uint4*>(rows + std::int64_t(row) * d + fragment.first_column(i));
      const half* elements = reinterpret_cast<const half*>(&vector);
#pragma unroll
      for (int c = 0; c < 8; ++c) fragment.x[i][r][c] = __half2float(elements[c]);
    }
  }
}

// A scale is a power of two. Dividing by it is exact, because it changes only the exponent, and so is multiplying by it
// again. A block whose maximum is 300 has the scale 1, since 300 <= 448. With a maximum of 500 the scale is 2.
//
// TODO(12.1) scale_for: the smallest power of two s with largest / s <= 448; 1 if `largest` is 0. frexpf(x, &e) returns
// f in [1/2, 1) with x = f·2^e, ldexpf(1, e) is 2^e, and 448 is 7/8·2^9. block_max: the largest magnitude of the block,
// the same for every thread. Reduce over the thread's elements, over its warp by shuffles, and over the warps through
// smem.warp_max. fmaxf(x, NaN) is x (about 17 lines).
// STUB: __device__ inline float scale_for(float largest) {
// STUB:   WORKBOOK_TODO(12.1);
// STUB: }
// STUB: template <int d>
// STUB: __device__ __forceinline__ float block_max(const BlockFragment<d>& fragment, RoundingShared<d>& smem) {
// STUB:   WORKBOOK_TODO(12.1);
// STUB: }
// BEGIN 12.1
__device__ inline float scale_for(float largest) {
  if (largest == 0) return 1;
  int exponent;
  const float fraction = frexpf(largest, &exponent);
  return ldexpf(1, fraction <= 0.875f ? exponent - 9 : exponent - 8);
}
template <int d>
__device__ __forceinline__ float block_max(const BlockFragment<d>& fragment, RoundingShared<d>& smem) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < BlockFragment<d>::count; ++i)
#pragma unroll
    for (int e = 0; e < 32; ++e) largest = fmaxf(largest, fabsf(fragment.x[i][e / 8][e % 8]));
  for (int lanes = 16; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(all_lanes, largest, lanes));
  if (threadIdx.x % 32 == 0) smem.warp_max[threadIdx.x / 32] = largest;
  __syncthreads();  // each warp has written its maximum
  for (const float other : smem.warp_max) largest = fmaxf(largest, other);
  return largest;
}
// END 12.1

/// Whether the rotation negates this column before it mixes the columns: a fixed pattern without structure.
__device__ inline bool flips_sign(int column) {
  const std::uint64_t signs = column < 64 ? 0xb5c0fbcfec4d3b2f : 0x59f111f1923f82a4;
  return signs >> column % 64 & 1;
}

// The Hadamard matrix of size d has elements 1 and -1: H_2d = [H_d H_d; H_d -H_d]. Multiplying a row x by it takes
// log2 d butterfly steps instead of d² multiplications. The step of `distance` 1, 2, 4, … replaces each x[c] and
// x[c + distance] by their sum and their difference, for those c in which this bit is 0. The first three steps are
// within a thread's eight columns. The others are between lanes: of the d / 8 lanes of a row, lane k starts at column
// 8·k.
template <int d>
__device__ __forceinline__ void rotate(BlockFragment<d>& fragment) {
  // TODO(12.8) For each row of each patch: negate the columns that flips_sign selects; the steps within the thread; the
  // steps between lanes, by __shfl_xor_sync (about 17 lines).
  // BEGIN 12.8
#pragma unroll
  for (int i = 0; i < BlockFragment<d>::count; ++i) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float(&x)[8] = fragment.x[i][r];
#pragma unroll
      for (int c = 0; c < 8; ++c) x[c] = flips_sign(fragment.first_column(i) + c) ? -x[c] : x[c];
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

/// Divides by the scale, rounds, and stores rows of codes (N, d) from row `first` on, eight codes at a time.
template <int d>
__device__ __forceinline__ void store_rows(E4m3* codes, const BlockFragment<d>& fragment, float scale, int first,
                                           int N) {
  const float inverse = 1 / scale;
#pragma unroll
  for (int i = 0; i < BlockFragment<d>::count; ++i) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = first + fragment.row(i, r);
      const auto round4 = [&](int c) {
        const float(&x)[8] = fragment.x[i][r];
        return cvt_rn_satfinite_e4m3x4(x[c] * inverse, x[c + 1] * inverse, x[c + 2] * inverse, x[c + 3] * inverse);
      };
      E4m3* const destination = codes + std::int64_t(row) * d + fragment.first_column(i);
      if (row < N) *reinterpret_cast<uint2*>(destination) = {round4(0), round4(4)};
    }
  }
}

// Stores V transposed: codes (d, keys), of which this block has 128 keys. A thread has four rows of V. In each of its
// columns they are four adjacent codes of the transposed row, one word. The words go through shared memory, so that a
// warp then stores the 32 words of a column, 128 bytes, at once. Word w of column c is stored there at
// w ^ c / 8 · (256 / d), so that the lanes of a warp access different banks.
template <int d>
__device__ __forceinline__ void store_transposed(E4m3* codes, const BlockFragment<d>& fragment, float scale,
                                                 std::int64_t keys, RoundingShared<d>& smem) {
  [[maybe_unused]] const float inverse = 1 / scale;
  [[maybe_unused]] const auto swizzled = [](int column, int word) { return word ^ column / 8 * (256 / d); };
  // TODO(12.3) Each thread writes the words of its patches to smem.words. After all threads have done so, each warp
  // takes columns and stores one word per lane. `codes` starts at the block's first key; the next column starts `keys`
  // codes later (about 13 lines).
  // BEGIN 12.3
#pragma unroll
  for (int i = 0; i < BlockFragment<d>::count; ++i)
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      const auto x = [&](int r) { return fragment.x[i][r][c] * inverse; };
      const int column = fragment.first_column(i) + c;
      smem.words[column][swizzled(column, fragment.word(i))] = cvt_rn_satfinite_e4m3x4(x(0), x(1), x(2), x(3));
    }
  __syncthreads();  // all words are in shared memory
  for (int column = threadIdx.x / 32; column < d; column += rounding_warps)
    reinterpret_cast<std::uint32_t*>(codes + column * keys)[threadIdx.x % 32] =
        smem.words[column][swizzled(column, threadIdx.x % 32)];
  // END 12.3
}

}  // namespace
}  // namespace ch12
