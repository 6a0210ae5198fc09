// Chapter 5: the phases that the kernel is made of: chapter 4's answers, and what the mask adds to them.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1 ("Causal masking").
// Test it: ./workbook test 5
#pragma once

#include "causal.hpp"
#include "layout.hpp"

namespace ch05 {
namespace {

// How many heads share the GPU at a time: enough blocks of every length to fill it, few enough for L2.
constexpr int heads_together = 8;

/// The sizes of a head, and whether query i sees only the keys j <= i + (Nk - Nq).
struct Sizes {
  std::int64_t Nq, Nk;
  bool causal;
};

/// How many tiles of Bc keys, from the first on, the queries first_query to first_query + Br - 1 see.
template <int Br, int Bc>
__device__ int kv_tiles(std::int64_t first_query, const Sizes& sizes) {
  // TODO(5.1) The last of these queries sees most; without the mask all see all keys (about 3 lines).
  // BEGIN 5.1
  WORKBOOK_TODO(5.1);
  // END 5.1
}

/// What block number `block` does: a tile of queries of a head.
struct Work {
  int head, q_tile;
};
__device__ Work work_of(int block, int heads, int q_tiles) {
  // TODO(5.4) Blocks start in the order of their numbers. Long ones first, and heads_together heads at a time, whose
  // K and V then stay in L2 (about 3 lines).
  // BEGIN 5.4
  WORKBOOK_TODO(5.4);
  // END 5.4
}

/// Before the first tile: O (32, d) = 0, and row_index (16, 16) for all warps: element (i, j) is i.
template <int threads, int d>
__device__ __forceinline__ void prepare(Fragments<d>& fragments, float (&row_index)[side][side], int thread) {
  for (auto& half_of_O : fragments.O)
    for (Accumulator& part : half_of_O) wmma::fill_fragment(part, 0.0f);
  for (int i = thread; i < side * side; i += threads) row_index[i / side][i % side] = float(i / side);
}

/// Q (32, d) into fragments, if there are registers for all of it.
template <int d>
__device__ __forceinline__ void keep_Q(Fragments<d>& fragments, const Element (&Q)[warp_rows][d + pad_half]) {
  if constexpr (Q_in_registers<d>) {
    for (int c = 0; c < d / side; ++c)
      for (int i = 0; i < halves; ++i) wmma::load_matrix_sync(fragments.Q[i][c], &Q[side * i][side * c], d + pad_half);
  }
}

/// Sᵀ = K Qᵀ, unscaled, for this warp's rows and `step` keys of the tile, from first_key on: (step, d), (32, d) ->
/// (step, 32).
template <int d, int step, int Bc>
__device__ __forceinline__ void multiply_QK(Workspace<d, step>& own, Fragments<d>& fragments,
                                            const Element (&Q)[warp_rows][d + pad_half],
                                            const Element (&K)[Bc][d + pad_half], int first_key) {
  Accumulator S[step / side][halves];
  for (auto& parts : S)
    for (Accumulator& part : parts) wmma::fill_fragment(part, 0.0f);
#pragma unroll
  for (int c = 0; c < d / side; ++c) {
    if constexpr (!Q_in_registers<d>) {
      for (int i = 0; i < halves; ++i) wmma::load_matrix_sync(fragments.Q[i][c], &Q[side * i][side * c], d + pad_half);
    }
#pragma unroll
    for (int j = 0; j < step / side; ++j) {
      wmma::fragment<wmma::matrix_a, side, side, side, Element, wmma::row_major> K_part;
      wmma::load_matrix_sync(K_part, &K[first_key + side * j][side * c], d + pad_half);
      for (int i = 0; i < halves; ++i) wmma::mma_sync(S[j][i], K_part, fragments.Q[i][c], S[j][i]);
    }
  }
#pragma unroll
  for (int j = 0; j < step / side; ++j)
    for (int i = 0; i < halves; ++i)
      wmma::store_matrix_sync(&own.S[side * j][side * i], S[j][i], warp_rows + pad_product, wmma::mem_row_major);
  __syncwarp();  // each lane reads what others have stored
}

/// If some row of the warp does not see all keys of this step: scales the scores, makes those of keys that the row does
/// not see -inf, and returns 1. Otherwise leaves the scores alone and returns scale. Either way they have still to be
/// multiplied by what is returned. query is the row's number in its head, first_key that of the step's first key, tile
/// that of the K/V tile.
template <int step>
__device__ __forceinline__ float mask_boundary(float (&S)[step], std::int64_t query, std::int64_t first_key, int tile,
                                               const Sizes& sizes, float scale) {
  // TODO(5.2) How many keys of this step does this row see? If all, in every lane, return scale. Otherwise say so by
  // workbook::cuda::note("masked tile", tile), scale and mask, and return 1 (about 6 lines).
  // BEGIN 5.2
  WORKBOOK_TODO(5.2);
  // END 5.2
}

/// S -> P = exp2(S·scale - m), with the m and l that the row has after this step; returns the factor that brings what
/// has been accumulated to the new m.
template <int step>
__device__ __forceinline__ float update_row(RowState& row, float (&S)[step], float scale) {
  // TODO(5.3) As in 4.3 and 4.8, for a row that may see no key in this step, or none at all. Then its scores are -inf,
  // and m may be: P is to be 0, m and l stay as they are, and nothing is NaN (about 10 lines).
  // BEGIN 5.3
  WORKBOOK_TODO(5.3);
  // END 5.3
}

/// S -> P (32, step) in this lane's row, 0 for keys that it does not see; m and l. Returns the factor that brings what
/// has been accumulated to the new m. scale holds log2(e).
template <int d, int step>
__device__ __forceinline__ float online_softmax(Workspace<d, step>& own, RowState& row, std::int64_t query,
                                                std::int64_t first_key, int tile, const Sizes& sizes, float scale) {
  const int lane = threadIdx.x % warp_size;
  float S[step];
  for (int j = 0; j < step; ++j) S[j] = own.S[j][lane];
  scale = mask_boundary(S, query, first_key, tile, sizes, scale);
  const float rescale = update_row(row, S, scale);
  workbook::cuda::note_value("m", query, row.m), workbook::cuda::note_value("l", query, row.l);  // for trace --html
  __syncwarp();  // all lanes have read S: P may overwrite it
  for (int j = 0; j < step; j += 8) reinterpret_cast<uint4*>(own.P[lane])[j / 8] = rounded(&S[j]);
  __syncwarp();  // P is there for all lanes
  return rescale;
}

/// Multiplies each row of O (32, d) by its lane's factor.
template <int d>
__device__ __forceinline__ void rescale_O(Fragments<d>& fragments, const float (&row_index)[side][side],
                                          float rescale) {
  if (!__any_sync(all_lanes, rescale != 1)) return;
  Accumulator row;
  wmma::load_matrix_sync(row, &row_index[0][0], side, wmma::mem_row_major);
#pragma unroll
  for (int i = 0; i < halves; ++i) {
#pragma unroll
    for (int e = 0; e < row.num_elements; ++e) {
      const float factor = __shfl_sync(all_lanes, rescale, side * i + int(row.x[e]));
      for (int c = 0; c < d / side; ++c) fragments.O[i][c].x[e] *= factor;
    }
  }
}

/// O += P V for this warp's rows and `step` keys of the tile, from first_key on: (32, step), (step, d) -> (32, d).
template <int d, int step, int Bc>
__device__ __forceinline__ void accumulate_PV(Workspace<d, step>& own, Fragments<d>& fragments,
                                              const Element (&V)[Bc][d + pad_half], int first_key) {
#pragma unroll
  for (int j = 0; j < step; j += side) {
    wmma::fragment<wmma::matrix_a, side, side, side, Element, wmma::row_major> P[halves];
    for (int i = 0; i < halves; ++i) wmma::load_matrix_sync(P[i], &own.P[side * i][j], step + pad_half);
#pragma unroll
    for (int c = 0; c < d / side; ++c) {
      wmma::fragment<wmma::matrix_b, side, side, side, Element, wmma::row_major> V_part;
      wmma::load_matrix_sync(V_part, &V[first_key + j][side * c], d + pad_half);
      for (int i = 0; i < halves; ++i) wmma::mma_sync(fragments.O[i][c], P[i], V_part, fragments.O[i][c]);
    }
  }
  __syncwarp();  // P has been read: the next S may overwrite it
}

/// O / l, rounded, and the LSE, (m + log2 l) ln 2, to device memory: the first `rows` of this warp's rows, (32, d) and
/// (32).
template <int d, int step>
__device__ __forceinline__ void write_output(Workspace<d, step>& own, const Fragments<d>& fragments,
                                             const RowState& row, Element* __restrict__ O_rows,
                                             float* __restrict__ lse_rows, int rows) {
  constexpr int columns = Workspace<d, step>::columns, chunks = columns / 8;
  const int lane = threadIdx.x % warp_size, chunk = lane % chunks;
  if (lane < rows) lse_rows[lane] = (row.m + log2f(row.l)) * ln_2;
  const float inverse = row.l == 0 ? 0 : 1 / row.l;  // 0: the row sees no key
#pragma unroll
  for (int first = 0; first < d; first += columns) {
#pragma unroll
    for (int c = 0; c < columns; c += side)
      for (int i = 0; i < halves; ++i)
        wmma::store_matrix_sync(&own.O[side * i][c], fragments.O[i][(first + c) / side], columns + pad_product,
                                wmma::mem_row_major);
    __syncwarp();  // all of it is there
    for (int i = lane / chunks; i < warp_rows; i += warp_size / chunks) {
      const float factor = __shfl_sync(all_lanes, inverse, i);
      alignas(16) float eight[8];
      for (int k = 0; k < 2; ++k)
        reinterpret_cast<float4*>(eight)[k] = reinterpret_cast<const float4*>(&own.O[i][8 * chunk])[k];
      if (i < rows) reinterpret_cast<uint4*>(O_rows)[i * (d / 8) + first / 8 + chunk] = rounded(eight, factor);
    }
    __syncwarp();  // the next columns may overwrite it
  }
}

/// Starts to copy rows x d elements from device memory into a tile of (tile_rows, d) in shared memory; the rest of the
/// tile becomes zeros. The caller is number `thread` of `threads` that do it together.
template <int threads, int tile_rows, int columns>
__device__ __forceinline__ void copy_tile(Element (&tile)[tile_rows][columns], const Element* __restrict__ source,
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

}  // namespace
}  // namespace ch05
