// Chapter 12, FP8 forward: Q, K, V and P have 8 bits, so that the tensor cores multiply twice as fast. O and the LSE as
// before, causal or not; for Hopper alone (sm_90a).
//
// What changes from chapter 11:
// - A first kernel rounds Q, K and V from fp16 to e4m3 (chapter 7's: 3 bits of mantissa, largest 448), each block of
//   128 rows with a scale of its own, a power of two. The second one is chapter 11's, and applies the scales.
// - wgmma takes operands of 8 bits by rows along k alone. O = P V sums over keys, so V is stored transposed, and its
//   keys in the order in which P lies in registers.
// - P is between 0 and 1, and e4m3 is finest between 2^-6 and 448: the kernel computes P·2^8.
// - Optionally Q and K are rotated first, which changes no score and spreads outliers over all columns.
// - The tensor cores add 8-bit products with 13 bits: they sum over a tile's keys, and O is the sum of these parts.
// - Optionally some of the exponentials are computed by multiply-adds, to see whether that is faster.
// What it costs: a P with 3 bits of mantissa, and scores that are off by some hundredths. For inference, not training.
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

/// So many rows of a head share a scale: one tile of K or V, two of Q's parts of 64 rows.
inline constexpr int block_rows = 128;

/// The sizes of the tiles and the warps of a block that there are kernels for, as in chapter 11. Bc is block_rows, so
/// that a tile has one scale. S, P and O take Bc / 2, Bc / 8 and d / 2 registers: three consumers fit for d = 64, two
/// for d = 128.
inline constexpr Tiles built[] = {{192, 128, 16}, {128, 128, 12}};
/// exp2_by_fma: one in so many exponentials is computed by multiply-adds (12.9), 16 or 4; 0: none.
constexpr bool is_built(int d, const Tiles& tiles, int exp2_by_fma = 0) {
  const bool two = tiles == built[1];
  return d == 64 ? two || (exp2_by_fma == 0 && tiles == built[0]) : d == 128 && two;
}
/// What a call may ask for: Q and K rotated first (12.8); exp2_by_fma, as above.
struct Options {
  bool rotated = false;
  int exp2_by_fma = 0;
};

/// A tensor rounded to e4m3, in device memory, and a scale for each block: heads·blocks. Q and K keep their layout
/// (heads, N, d). V is (heads, d, 128·blocks), its keys in the order of key_at.
struct Rounded {
  E4m3* codes;
  float* scales;
};
inline std::int64_t blocks_of(std::int64_t rows) {
  return (rows + block_rows - 1) / block_rows;
}

/// Rounds Q or K of so many heads, fp16 (heads, N, d). `rotated`: each row is multiplied by signs and by Hadamard's
/// matrix first, which is √d times an orthogonal one: scores become d times as large. d is 64 or 128.
void round_rows(const half* tensor, Rounded to, std::int64_t heads, std::int64_t N, int d, bool rotated);
/// The same, transposed and never rotated. Keys beyond N, to the end of the block, become zeros.
void round_and_transpose(const half* tensor, Rounded to, std::int64_t heads, std::int64_t N, int d);

/// O = softmax(scale·QKᵀ) V and the LSE for every head, by three launches that round and one that multiplies. Rows that
/// see no key give O = 0 and an LSE of -inf. std::invalid_argument for what is not built.
void attention(const ForwardCall<half>& call, const Tiles& tiles, const Rounded& Q, const Rounded& K, const Rounded& V,
               const Options& options);
/// Bytes of shared memory that a block takes; 0: no kernel has these tiles.
std::size_t shared_bytes(int d, const Tiles& tiles);

/// y = 2^x by multiply-adds, both (count): what exp2_by_fma gives.
void exponentials(const float* x, float* y, int count);
/// keys (128): which key of a tile lies at each place of V's rows.
void key_order(std::int32_t* keys);

}  // namespace ch12
