// Chapter 12, FP8 forward: Q, K, V and P have 8 bits, so that the tensor cores multiply twice as fast. O and the LSE as
// in chapter 11, causal or not. For Hopper only (sm_90a).
//
// What changes from chapter 11:
// - A first kernel rounds Q, K and V from fp16 to e4m3 (chapter 7: 3 mantissa bits, maximum 448). Each block of 128
//   rows has its own scale, a power of two. The second kernel is version 4 of chapter 11's (no slack, not
//   persistent), and applies the scales.
// - wgmma takes 8-bit operands K-major only. O = P V sums over keys, so V is stored transposed, with its keys in the
//   order in which registers hold P.
// - P is between 0 and 1, but e4m3 has its full precision from 2^-6 to 448. So the kernel computes P·2^8.
// - Optionally Q and K are rotated first, which keeps the scores and spreads outliers over all columns.
// - The tensor cores accumulate 8-bit operands with 13 bits. So they sum over the keys of one tile only, and O is the
//   fp32 sum of these parts.
// - Optionally the FMA units compute some of the exponentials, to measure whether that is faster.
// What it costs: P has 3 mantissa bits, and scores are off by some hundredths. For inference, not for training.
//
// Source: Shah et al. 2024 (FlashAttention-3), section 3.3; Micikevicius et al. 2022, "FP8 Formats for Deep Learning".
// Test it: ./workbook test 12
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/cuda/calls.hpp"
#include "common/cuda/kernel.hpp"

namespace ch12 {

using workbook::Shape, workbook::cuda::ForwardCall, workbook::cuda::Tiles;
using E4m3 = __nv_fp8_e4m3;

/// The rows of a head that share a scale: one K/V tile, or the Q rows of two consumers.
inline constexpr int block_rows = 128;

/// The tile sizes and warps per thread block for which kernels are built. Bc is block_rows, so that a tile has one
/// scale. S, P and O take Bc / 2, Bc / 8 and d / 2 registers of a thread: three consumers fit for d = 64, two for
/// d = 128.
inline constexpr Tiles built[] = {{192, 128, 16}, {128, 128, 12}};
/// exp2_by_fma: one in exp2_by_fma exponentials is computed by multiply-adds (12.9), 16 or 4; 0: none.
constexpr bool is_built(int d, const Tiles& tiles, int exp2_by_fma = 0) {
  const bool two = tiles == built[1];
  return d == 64 ? two || (exp2_by_fma == 0 && tiles == built[0]) : d == 128 && two;
}
/// Options of a call: rotate Q and K first (12.8); exp2_by_fma, as above.
struct Options {
  bool rotated = false;
  int exp2_by_fma = 0;
};

/// A tensor rounded to e4m3 in device memory, and its scales (heads, blocks). Q and K keep their layout (heads, N, d).
/// V is (heads, d, 128·blocks), its keys in the order of key_at.
struct Rounded {
  E4m3* codes;
  float* scales;
};
inline std::int64_t block_count(std::int64_t rows) {
  return (rows + block_rows - 1) / block_rows;
}

/// Rounds Q or K, fp16 (heads, N, d). `rotated`: each row is first multiplied by signs and by the Hadamard matrix, √d
/// times an orthogonal matrix. Scores become d times as large. d is 64 or 128.
void round_rows(const half* tensor, Rounded to, std::int64_t heads, std::int64_t N, int d, bool rotated);
/// Rounds V and transposes it, without a rotation. Keys past N, up to the end of the block, become zeros.
void round_and_transpose(const half* tensor, Rounded to, std::int64_t heads, std::int64_t N, int d);

/// O = softmax(scale·QKᵀ) V and the LSE for every head. Three launches round, one multiplies. Rows that see no key have
/// O = 0 and an LSE of -inf. Throws std::invalid_argument for sizes and options that are not built.
void attention(const ForwardCall<half>& call, const Tiles& tiles, const Rounded& Q, const Rounded& K, const Rounded& V,
               const Options& options);
/// Bytes of shared memory per thread block; 0 if no kernel has these tiles.
std::size_t shared_bytes(int d, const Tiles& tiles);

/// y = exp2_by_fma(x), both (count).
void exponentials(const float* x, float* y, int count);
/// keys (128): key_at of each k.
void key_order(std::int32_t* keys);

}  // namespace ch12
