// Chapter 4, given: the element type and the constants of the kernels; a warp's workspace in shared memory, its
// fragments, and each lane's row state; and two functions that one lane computes alone.
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch04 {
namespace {

using namespace nvcuda;
using workbook::cuda::dynamic_shared, workbook::cuda::exp2_ftz;

using Element = half;  // of Q, K, V, P and O

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;
constexpr int warp_size = 32;             // lanes of a warp
constexpr int warp_rows = 32;             // rows of Q per warp: one row per lane
constexpr int side = 16;                  // rows and columns of a fragment
constexpr int halves = warp_rows / side;  // a warp's rows are two fragments high

// As in chapter 3: rows of halves are padded by 16 bytes for fragment loads, rows of floats by 32 for fragment stores.
constexpr int pad_half = 16 / sizeof(Element), pad_accumulator = 32 / sizeof(float);

// At d = 128 the registers hold O but not Q as well: the fragments of Q are then reloaded in every step.
template <int d>
constexpr bool Q_in_registers = d <= 64;
// Thread blocks per SM. An SM has 65,536 registers: 65,536 / (8 · 32) = 256 per lane for 8 warps, 170 for 12, 128 for
// 16. A lane needs d for O, 32 or 64 for S, d / 2 for Q if it is in registers, and about 30 more.
template <int d, int warps>
constexpr int blocks = (d == 128 || warps < 4 ? 8
                        : d == 64             ? 12
                                              : 16) /
                       warps;

/// A warp's private workspace in shared memory: it holds S, then P of one step, and after the last tile O, `columns`
/// columns at a time. S is transposed: a lane's row is a column, so that the lanes read adjacent elements.
template <int d, int step>
union Workspace {
  static constexpr int columns = d < step ? d : step;
  float S[step][warp_rows + pad_accumulator];
  Element P[warp_rows][step + pad_half];
  float O[warp_rows][columns + pad_accumulator];
};

/// A warp's fragments: O (32, d) and Q (32, d). Unless Q_in_registers<d>, only the fragments of Q in use are live.
using QFragment = wmma::fragment<wmma::matrix_b, side, side, side, Element, wmma::col_major>;  // of Qᵀ
using Accumulator = wmma::fragment<wmma::accumulator, side, side, side, float>;
template <int d>
struct Fragments {
  Accumulator O[halves][d / side];
  QFragment Q[halves][d / side];
};

/// The running maximum and sum of a lane's row.
struct RowState {
  float m = -INFINITY, l = 0;
};

/// Eight floats, multiplied by factor and rounded to fp16: 16 bytes.
__device__ uint4 rounded(const float* x, float factor = 1) {
  uint4 result;
  auto* pairs = reinterpret_cast<half2*>(&result);
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2half2_rn(x[2 * i] * factor, x[2 * i + 1] * factor);
  return result;
}

/// The maximum of scale·S[j]. The maxima over even and odd j are independent, which halves the dependency chain.
template <int step>
__device__ float largest_scaled(const float (&S)[step], float scale) {
  float even = S[0], odd = S[1];
  if (scale >= 0) {
    for (int j = 2; j < step; j += 2) even = fmaxf(even, S[j]), odd = fmaxf(odd, S[j + 1]);
  } else {
    for (int j = 2; j < step; j += 2) even = fminf(even, S[j]), odd = fminf(odd, S[j + 1]);
  }
  return fmaxf(even * scale, odd * scale);
}

}  // namespace
}  // namespace ch04
