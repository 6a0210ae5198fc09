// Chapter 4, given: what a block keeps in shared memory, a warp in fragments and a lane of its row; and two functions
// of one lane that are arithmetic only.
#pragma once

#include <cstdint>

#include "common/cuda/kernel.hpp"

namespace ch04 {
namespace {

using namespace nvcuda;
using workbook::cuda::dynamic_shared, workbook::cuda::exp2_ftz;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;

// As in chapter 3: rows of halves padded by 16 bytes for loads of fragments, rows of floats by 32 for their stores.
constexpr int pad_half = 16 / sizeof(half), pad_product = 32 / sizeof(float);

// m may stay behind a row's maximum by this much, and O is then not rescaled: P is at most 2^8, and fp16 is as exact
// there as it is at 1. 0 would keep m at the maximum. The idea and the number: Zadouri et al. 2026 (FlashAttention-4).
constexpr float slack = 8;

// With d = 128 there is neither shared memory for a second K/V tile nor registers for Q.
template <int d>
constexpr int copies = d <= 64 ? 2 : 1;
template <int d>
constexpr bool Q_in_registers = d <= 64;
// How many keys of a tile a warp takes at a time: a lane keeps the scores of a step in registers.
template <int d, int Bc>
constexpr int step = d <= 64 ? 32 : Bc;
// How many blocks are to fit a multiprocessor. The compiler divides the registers among them.
template <int d, int warps>
constexpr int blocks = (d == 128 || warps < 4 ? 8
                        : d == 64             ? 12
                                              : 16) /
                       warps;

/// What a warp keeps in shared memory for itself, one after the other. Its S is transposed: a lane's row is a column,
/// so that the lanes read neighbours.
template <int d, int Bc>
union Workspace {
  static constexpr int keys = step<d, Bc>, columns = d < keys ? d : keys;
  float S[keys][32 + pad_product];
  half P[32][keys + pad_half];
  float O[32][columns + pad_product];
};

/// What a block keeps in shared memory. Every warp uses its own Q and workspace, and all of K and V.
template <int d, int Br, int Bc, int warps>
struct Shared {
  half Q[warps][32][d + pad_half], K[copies<d>][Bc][d + pad_half], V[copies<d>][Bc][d + pad_half];
  float row_index[16][16];  // element (i, j) is i
  Workspace<d, Bc> own[warps];
  SHARED_LAYOUT(Shared, (Q, d, d + pad_half), (K, d, d + pad_half), (V, d, d + pad_half), row_index, own);
};

/// What a warp keeps in registers: O (32, d), and Q (32, d), of which only the part in use if there is no room for all.
using QFragment = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major>;  // a column of Qᵀ is a row of Q
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
template <int d>
struct Fragments {
  Accumulator O[2][d / 16];
  QFragment Q[2][d / 16];
};

/// What a lane keeps of its row.
struct RowState {
  float m = -INFINITY, l = 0;
};

/// Eight floats times factor, rounded to fp16: 16 bytes.
__device__ uint4 rounded(const float* x, float factor = 1) {
  uint4 eight;
  auto* pairs = reinterpret_cast<half2*>(&eight);
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2half2_rn(x[2 * i] * factor, x[2 * i + 1] * factor);
  return eight;
}

/// The largest of scale·S[j]: a maximum over the even j and one over the odd, neither of which waits for the other.
template <int width>
__device__ float largest_scaled(const float (&S)[width], float scale) {
  float extreme[2] = {S[0], S[1]};
  if (scale >= 0) {
    for (int j = 2; j < width; ++j) extreme[j % 2] = fmaxf(extreme[j % 2], S[j]);
  } else {
    for (int j = 2; j < width; ++j) extreme[j % 2] = fminf(extreme[j % 2], S[j]);
  }
  return fmaxf(extreme[0] * scale, extreme[1] * scale);
}

}  // namespace
}  // namespace ch04
