// Chapter 4, given: the element type and the numbers of the kernels; what a warp keeps in shared memory, in fragments
// and, for each lane, of its row; and two functions of one lane that are arithmetic only.
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
constexpr int warp_size = 32;  // lanes of a warp
constexpr int warp_rows = 32;  // rows of Q that a warp has for itself: as many as lanes, one row a lane
constexpr int side = 16;       // of a fragment
constexpr int halves = warp_rows / side;

// As in chapter 3: rows of elements padded by 16 bytes for loads of fragments, rows of floats by 32 for their stores.
constexpr int pad_half = 16 / sizeof(Element), pad_product = 32 / sizeof(float);

// With d = 128 there are no registers for Q beside O: then its fragments are loaded again for every step.
template <int d>
constexpr bool Q_in_registers = d <= 64;
// How many blocks are to fit a multiprocessor. Its 65,536 registers are 65,536 / (8 · 32) = 256 for each lane of 8
// warps, 170 of 12, 128 of 16. A lane needs d for O, 32 or 64 for S, d / 2 for Q if it is kept, and about 30 more.
template <int d, int warps>
constexpr int blocks = (d == 128 || warps < 4 ? 8
                        : d == 64             ? 12
                                              : 16) /
                       warps;

/// What a warp keeps in shared memory for itself, one after the other: S and P of one step, and at the end O, as many
/// columns at a time as there is room for. S is transposed: a lane's row is a column, so that the lanes read
/// neighbours.
template <int d, int step>
union Workspace {
  static constexpr int columns = d < step ? d : step;
  float S[step][warp_rows + pad_product];
  Element P[warp_rows][step + pad_half];
  float O[warp_rows][columns + pad_product];
};

/// What a warp keeps in registers: O (32, d), and Q (32, d), of which only the part in use if there is no room for all.
using QFragment = wmma::fragment<wmma::matrix_b, side, side, side, Element, wmma::col_major>;  // a column of Qᵀ
using Accumulator = wmma::fragment<wmma::accumulator, side, side, side, float>;
template <int d>
struct Fragments {
  Accumulator O[halves][d / side];
  QFragment Q[halves][d / side];
};

/// What a lane keeps of its row.
struct RowState {
  float m = -INFINITY, l = 0;
};

/// Eight floats times factor, rounded: 16 bytes.
__device__ uint4 rounded(const float* x, float factor = 1) {
  uint4 eight;
  auto* pairs = reinterpret_cast<half2*>(&eight);
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2half2_rn(x[2 * i] * factor, x[2 * i + 1] * factor);
  return eight;
}

/// The largest of scale·S[j]: a maximum over the even j and one over the odd, neither of which waits for the other.
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
