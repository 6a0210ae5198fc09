// Chapter 5, given: chapter 4's answers. What a block keeps in shared memory, a warp in fragments, a lane of its row,
// and the phases of the kernel that the mask leaves as they are. Element is half, or another type of 16 bits that
// tensor cores multiply and Convert knows: chapter 7 makes it bf16.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3.
#pragma once

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "common/cuda/kernel.hpp"

namespace ch05 {
namespace {

using namespace nvcuda;
using workbook::cuda::Convert, workbook::cuda::dynamic_shared, workbook::cuda::exp2_ftz;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;

// As in chapter 3: rows of elements padded by 16 bytes for loads of fragments, rows of floats by 32 for their stores.
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
template <class Element, int d, int Bc>
union Workspace {
  static constexpr int keys = step<d, Bc>, columns = d < keys ? d : keys;
  float S[keys][32 + pad_product];
  Element P[32][keys + pad_half];
  float O[32][columns + pad_product];
};

/// What a block keeps in shared memory. Every warp uses its own Q and workspace, and all of K and V.
template <class Element, int d, int Br, int Bc, int warps>
struct Shared {
  Element Q[warps][32][d + pad_half], K[copies<d>][Bc][d + pad_half], V[copies<d>][Bc][d + pad_half];
  float row_index[16][16];  // element (i, j) is i
  Workspace<Element, d, Bc> own[warps];
  SHARED_LAYOUT(Shared, (Q, d, d + pad_half), (K, d, d + pad_half), (V, d, d + pad_half), row_index, own);
};

/// What a warp keeps in registers: O (32, d), and Q (32, d), of which only the part in use if there is no room for all.
template <class Element>  // a column of Qᵀ is a row of Q
using QFragment = wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::col_major>;
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
template <class Element, int d>
struct Fragments {
  Accumulator O[2][d / 16];
  QFragment<Element> Q[2][d / 16];
};

/// What a lane keeps of its row.
struct RowState {
  float m = -INFINITY, l = 0;
};

/// Eight floats times factor, rounded to Element: 16 bytes.
template <class Element>
__device__ uint4 rounded(const float* x, float factor = 1) {
  uint4 eight;
  auto* pairs = reinterpret_cast<typename Convert<Element>::Pair*>(&eight);
  for (int i = 0; i < 4; ++i) pairs[i] = Convert<Element>::rounded(x[2 * i] * factor, x[2 * i + 1] * factor);
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

/// Starts to copy rows x d elements from device memory into a tile of (tile_rows, d) in shared memory; the rest of the
/// tile becomes zeros. The caller is number `thread` of `threads` that do it together.
template <int threads, class Element, int tile_rows, int columns>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][columns], const Element* __restrict__ source,
                                          int rows, int thread) {
  constexpr int d = columns - pad_half;
  const int first_row = thread / (d / 8), chunk = thread % (d / 8);  // a chunk is 16 bytes, eight elements
  const uint4* from = reinterpret_cast<const uint4*>(source) + first_row * (d / 8) + chunk;
#pragma unroll 8  // more addresses at once would not fit the registers
  for (int i = 0; i < tile_rows; i += threads / (d / 8)) {
    const int row = first_row + i;
    __pipeline_memcpy_async(&reinterpret_cast<uint4*>(tile[row])[chunk], from + i * (d / 8), 16, row < rows ? 0 : 16);
  }
}

/// Sᵀ = K Qᵀ, unscaled, for this warp's rows and the step's keys from first_key on: (step, d), (32, d) -> (step, 32).
template <class Element, int d, int Br, int Bc, int warps>
__device__ __forceinline__ void multiply_QK(Shared<Element, d, Br, Bc, warps>& smem, Fragments<Element, d>& fragments,
                                            int copy, int first_key) {
  constexpr int keys = step<d, Bc>;
  const int warp = threadIdx.x / 32;
  Accumulator S[keys / 16][2];
  for (auto& tiles : S)
    for (Accumulator& tile : tiles) wmma::fill_fragment(tile, 0.0f);
#pragma unroll
  for (int c = 0; c < d / 16; ++c) {
    for (int i = 0; i < 2 && !Q_in_registers<d>; ++i)
      wmma::load_matrix_sync(fragments.Q[i][c], &smem.Q[warp][16 * i][16 * c], d + pad_half);
#pragma unroll
    for (int j = 0; j < keys / 16; ++j) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major> K;
      wmma::load_matrix_sync(K, &smem.K[copy][first_key + 16 * j][16 * c], d + pad_half);
      for (int i = 0; i < 2; ++i) wmma::mma_sync(S[j][i], K, fragments.Q[i][c], S[j][i]);
    }
  }
#pragma unroll
  for (int j = 0; j < keys / 16; ++j)
    for (int i = 0; i < 2; ++i)
      wmma::store_matrix_sync(&smem.own[warp].S[16 * j][16 * i], S[j][i], 32 + pad_product, wmma::mem_row_major);
  __syncwarp();  // each lane reads what others have stored
}

/// Multiplies each row of O (32, d) by its lane's factor.
template <class Element, int d, int Br, int Bc, int warps>
__device__ __forceinline__ void rescale_O(Shared<Element, d, Br, Bc, warps>& smem, Fragments<Element, d>& fragments,
                                          float rescale) {
  if (!__any_sync(all_lanes, rescale != 1)) return;
  Accumulator row;
  wmma::load_matrix_sync(row, &smem.row_index[0][0], 16, wmma::mem_row_major);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int e = 0; e < row.num_elements; ++e) {
      const float factor = __shfl_sync(all_lanes, rescale, 16 * i + int(row.x[e]));
      for (int c = 0; c < d / 16; ++c) fragments.O[i][c].x[e] *= factor;
    }
  }
}

/// O += P V for this warp's rows and one step's keys: (32, step), (step, d) -> (32, d).
template <class Element, int d, int Br, int Bc, int warps>
__device__ __forceinline__ void accumulate_PV(Shared<Element, d, Br, Bc, warps>& smem, Fragments<Element, d>& fragments,
                                              int copy, int first_key) {
  constexpr int keys = step<d, Bc>;
#pragma unroll
  for (int j = 0; j < keys; j += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major> P[2];
    for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(P[i], &smem.own[threadIdx.x / 32].P[16 * i][j], keys + pad_half);
#pragma unroll
    for (int c = 0; c < d / 16; ++c) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::row_major> V;
      wmma::load_matrix_sync(V, &smem.V[copy][first_key + j][16 * c], d + pad_half);
      for (int i = 0; i < 2; ++i) wmma::mma_sync(fragments.O[i][c], P[i], V, fragments.O[i][c]);
    }
  }
  __syncwarp();  // P has been read: the next S may overwrite it
}

/// O / l as Element and the LSE, m + log l, to device memory: the first `rows` of this warp's rows, (32, d) and (32).
template <class Element, int d, int Br, int Bc, int warps>
__device__ __forceinline__ void write_output(Shared<Element, d, Br, Bc, warps>& smem,
                                             const Fragments<Element, d>& fragments, const RowState& row,
                                             Element* __restrict__ O_rows, float* __restrict__ lse_rows, int rows) {
  constexpr int columns = Workspace<Element, d, Bc>::columns, chunks = columns / 8;
  const int lane = threadIdx.x % 32, chunk = lane % chunks;
  auto& own = smem.own[threadIdx.x / 32];
  if (lane < rows) lse_rows[lane] = (row.m + log2f(row.l)) * ln_2;
  const float inverse = row.l == 0 ? 0 : 1 / row.l;
#pragma unroll
  for (int c = 0; c < d; c += columns) {
#pragma unroll
    for (int i = 0; i < columns / 8; ++i)
      wmma::store_matrix_sync(&own.O[i % 2 * 16][i / 2 * 16], fragments.O[i % 2][c / 16 + i / 2], columns + pad_product,
                              wmma::mem_row_major);
    __syncwarp();  // all of it is there
    for (int i = lane / chunks; i < 32; i += 32 / chunks) {
      const float factor = __shfl_sync(all_lanes, inverse, i);
      alignas(16) float eight[8];
      for (int k = 0; k < 2; ++k)
        reinterpret_cast<float4*>(eight)[k] = reinterpret_cast<const float4*>(&own.O[i][8 * chunk])[k];
      if (i < rows) reinterpret_cast<uint4*>(O_rows)[i * (d / 8) + c / 8 + chunk] = rounded<Element>(eight, factor);
    }
    __syncwarp();  // the next columns may overwrite it
  }
}

}  // namespace
}  // namespace ch05
