// Chapter 5: the phases of the kernel: chapter 4's phases, and the functions for the causal mask.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1 ("Causal masking").
// Test it: ./workbook test 5
#pragma once

#include "causal.hpp"
#include "layout.hpp"

namespace ch05 {
namespace {

// Heads whose blocks are launched together: enough blocks to fill the GPU, few enough that their K and V fit L2.
constexpr int heads_per_group = 8;

/// A head's sizes and mask: if causal, query i attends to the keys j <= i + (Nk - Nq), otherwise to all keys.
struct Sizes {
  std::int64_t Nq, Nk;
  bool causal;
};

/// The number of K/V tiles, counted from tile 0, that hold a key visible to one of the Br queries from first_query on.
template <int Br, int Bc>
__device__ int kv_tiles(std::int64_t first_query, const Sizes& sizes) {
  // TODO(5.1) Count the keys that the tile's last query attends to, 0 if that is negative, and round up to whole
  // tiles. Without the mask every query attends to Nk keys (about 3 lines).
  // BEGIN 5.1
  const std::int64_t last_query = min(first_query + Br, sizes.Nq) - 1;
  const std::int64_t visible = sizes.causal ? min(sizes.Nk, last_query + (sizes.Nk - sizes.Nq) + 1) : sizes.Nk;
  return visible <= 0 ? 0 : (visible + Bc - 1) / Bc;
  // END 5.1
}

/// The head and the Q tile of block `block`. Each head has q_tiles Q tiles.
struct Work {
  int head, q_tile;
};
__device__ Work work_of(int block, int heads, int q_tiles) {
  // TODO(5.4) Groups of heads_per_group heads, one after the other; the last group may be smaller. Within a group, the
  // last Q tile of every head comes first, then the last but one of every head, and so on (about 3 lines).
  // BEGIN 5.4
  const int first_head = block / (heads_per_group * q_tiles) * heads_per_group;
  const int group_heads = min(heads_per_group, heads - first_head), index = block - first_head * q_tiles;
  return {first_head + index % group_heads, q_tiles - 1 - index / group_heads};
  // END 5.4
}

/// Before the first tile: clears O (32, d), and fills row_index (16, 16), which all warps share: element (i, j) is i.
template <int threads, int d>
__device__ __forceinline__ void prepare(Fragments<d>& fragments, float (&row_index)[side][side], int thread) {
  for (auto& half_of_O : fragments.O)
    for (Accumulator& part : half_of_O) wmma::fill_fragment(part, 0.0f);
  for (int i = thread; i < side * side; i += threads) row_index[i / side][i % side] = float(i / side);
}

/// Loads Q (32, d) into fragments if they stay in registers.
template <int d>
__device__ __forceinline__ void load_Q(Fragments<d>& fragments, const Element (&Q)[warp_rows][d + pad_half]) {
  if constexpr (Q_in_registers<d>) {
    for (int c = 0; c < d / side; ++c)
      for (int i = 0; i < halves; ++i) wmma::load_matrix_sync(fragments.Q[i][c], &Q[side * i][side * c], d + pad_half);
  }
}

/// Sᵀ = K Qᵀ, unscaled, for this warp's rows and `step` keys of the tile from first_key on:
/// (step, d), (32, d) -> (step, 32).
template <int d, int step, int Bc>
__device__ __forceinline__ void multiply_QK(Workspace<d, step>& workspace, Fragments<d>& fragments,
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
      wmma::store_matrix_sync(&workspace.S[side * j][side * i], S[j][i], warp_rows + pad_accumulator,
                              wmma::mem_row_major);
  __syncwarp();  // S is visible to all lanes
}

/// Masks the scores of this step if a row of the warp does not attend to all of its keys: scales every score, sets the
/// masked ones to -inf, and returns 1. Otherwise leaves S unchanged and returns scale. The caller multiplies the scores
/// by the returned factor. query and first_key are the indices in the head of the lane's row and of the step's first
/// key; tile is the index of the K/V tile.
template <int step>
__device__ __forceinline__ float mask_boundary(float (&S)[step], std::int64_t query, std::int64_t first_key, int tile,
                                               const Sizes& sizes, float scale) {
  // TODO(5.2) Count the visible keys of this step. If all of its keys are visible to every lane, return scale.
  // Otherwise call workbook::cuda::note("masked tile", tile), scale and mask S, and return 1 (about 6 lines).
  // BEGIN 5.2
  const std::int64_t visible = sizes.causal ? min(sizes.Nk, query + (sizes.Nk - sizes.Nq) + 1) : sizes.Nk;
  const std::int64_t visible_in_step = visible - first_key;
  if (!__any_sync(all_lanes, visible_in_step < step)) return scale;
  workbook::cuda::note("masked tile", tile);
  for (int j = 0; j < step; ++j) S[j] = j < visible_in_step ? S[j] * scale : -INFINITY;
  return 1;
  // END 5.2
}

/// Replaces S by P = exp2(S·scale - m) and updates the row's m and l. Returns the factor that rescales O to the new m.
/// If all scores of the row so far are -inf: P = 0, l = 0 and m = -inf. scale includes log2(e).
template <int step>
__device__ __forceinline__ float update_row(RowState& row, float (&S)[step], float scale) {
  // TODO(5.3) Combine 4.3 and 4.8, for rows whose scores may all be -inf. Such a step must leave m and l unchanged and
  // give P = 0. m itself may be -inf, so subtract m_safe instead (about 10 lines).
  // BEGIN 5.3
  const float largest = largest_scaled(S, scale), m = largest > row.m + slack ? largest : row.m;
  const float m_safe = m == -INFINITY ? 0 : m, rescale = exp2_ftz(row.m - m_safe);
  float sum = 0;
  for (int j = 0; j < step; ++j) {
    S[j] = exp2_ftz(S[j] * scale - m_safe);
    sum += S[j];
  }
  row.m = m;
  row.l = rescale * row.l + sum;
  return rescale;
  // END 5.3
}

/// One step of the online softmax: replaces S by P (32, step) in this lane's row, 0 for masked keys, and updates its m
/// and l. Returns the factor that rescales O to the new m. scale includes log2(e).
template <int d, int step>
__device__ __forceinline__ float softmax_step(Workspace<d, step>& workspace, RowState& row, std::int64_t query,
                                              std::int64_t first_key, int tile, const Sizes& sizes, float scale) {
  const int lane = threadIdx.x % warp_size;
  float S[step];
  for (int j = 0; j < step; ++j) S[j] = workspace.S[j][lane];
  scale = mask_boundary(S, query, first_key, tile, sizes, scale);
  const float rescale = update_row(row, S, scale);
  workbook::cuda::note_value("m", query, row.m), workbook::cuda::note_value("l", query, row.l);  // for trace --html
  __syncwarp();  // all lanes have read S: P may overwrite it
  for (int j = 0; j < step; j += 8) reinterpret_cast<uint4*>(workspace.P[lane])[j / 8] = rounded(&S[j]);
  __syncwarp();  // P is visible to all lanes
  return rescale;
}

/// Multiplies each row of O (32, d) by its factor; lane r has the factor of row r.
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

/// O += P V for this warp's rows and `step` keys of the tile from first_key on: (32, step), (step, d) -> (32, d).
template <int d, int step, int Bc>
__device__ __forceinline__ void accumulate_PV(Workspace<d, step>& workspace, Fragments<d>& fragments,
                                              const Element (&V)[Bc][d + pad_half], int first_key) {
#pragma unroll
  for (int j = 0; j < step; j += side) {
    wmma::fragment<wmma::matrix_a, side, side, side, Element, wmma::row_major> P[halves];
    for (int i = 0; i < halves; ++i) wmma::load_matrix_sync(P[i], &workspace.P[side * i][j], step + pad_half);
#pragma unroll
    for (int c = 0; c < d / side; ++c) {
      wmma::fragment<wmma::matrix_b, side, side, side, Element, wmma::row_major> V_part;
      wmma::load_matrix_sync(V_part, &V[first_key + j][side * c], d + pad_half);
      for (int i = 0; i < halves; ++i) wmma::mma_sync(fragments.O[i][c], P[i], V_part, fragments.O[i][c]);
    }
  }
  __syncwarp();  // P has been read: the next S may overwrite it
}

/// Writes O / l, rounded, and the LSE, (m + log2 l) ln 2, to device memory, for the first `rows` of this warp's rows:
/// (32, d) and (32).
template <int d, int step>
__device__ __forceinline__ void write_output(Workspace<d, step>& workspace, const Fragments<d>& fragments,
                                             const RowState& row, Element* __restrict__ O_rows,
                                             float* __restrict__ lse_rows, int rows) {
  constexpr int columns = Workspace<d, step>::columns, chunks = columns / 8;
  const int lane = threadIdx.x % warp_size, chunk = lane % chunks;
  if (lane < rows) lse_rows[lane] = (row.m + log2f(row.l)) * ln_2;
  const float inverse = row.l == 0 ? 0 : 1 / row.l;  // 0: the row has no visible key
#pragma unroll
  for (int first = 0; first < d; first += columns) {
#pragma unroll
    for (int c = 0; c < columns; c += side)
      for (int i = 0; i < halves; ++i)
        wmma::store_matrix_sync(&workspace.O[side * i][c], fragments.O[i][(first + c) / side],
                                columns + pad_accumulator, wmma::mem_row_major);
    __syncwarp();  // these columns of O are visible to all lanes
    for (int i = lane / chunks; i < warp_rows; i += warp_size / chunks) {
      const float factor = __shfl_sync(all_lanes, inverse, i);
      alignas(16) float values[8];
      for (int k = 0; k < 2; ++k)
        reinterpret_cast<float4*>(values)[k] = reinterpret_cast<const float4*>(&workspace.O[i][8 * chunk])[k];
      if (i < rows) reinterpret_cast<uint4*>(O_rows)[i * (d / 8) + first / 8 + chunk] = rounded(values, factor);
    }
    __syncwarp();  // all lanes have read O: the next columns may overwrite it
  }
}

/// Issues the asynchronous copy of rows x d elements from device memory to a tile (tile_rows, d) in shared memory. The
/// remaining rows of the tile become zeros. `threads` threads copy together; the caller is number `thread` of them.
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
