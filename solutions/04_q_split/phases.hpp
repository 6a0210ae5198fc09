// Chapter 4: the phases of its kernels. All three kernels call them.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3.
// Test it: ./workbook test 4
#pragma once

#include "layout.hpp"

namespace ch04 {
namespace {

/// The queries of a warp: `rows` queries of a head, from first_query on. None if rows <= 0.
struct Work {
  std::int64_t head, first_query;
  int rows;
};

/// The queries of warp `warp` of block `block`. Each head has q_tiles Q tiles of Br queries.
template <int Br>
__device__ Work work_of(int block, int warp, int q_tiles, std::int64_t Nq) {
  // TODO(4.1) Blocks 0 to q_tiles - 1 compute the Q tiles of head 0, the next q_tiles blocks those of head 1, and so
  // on. Each warp computes warp_rows consecutive rows of the tile; count those below Nq (about 3 lines).
  // BEGIN 4.1
  const std::int64_t first_query = std::int64_t(block % q_tiles) * Br + warp_rows * warp;
  const std::int64_t rows = min(std::int64_t(warp_rows), Nq - first_query);
  return {block / q_tiles, first_query, int(rows)};
  // END 4.1
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
  // TODO(4.2) K is the left operand, Qᵀ the right one. Load each fragment of K once, for both halves of the warp's
  // rows. Q is in fragments.Q if Q_in_registers<d>; otherwise load each of its fragments once (about 18 lines).
  // BEGIN 4.2
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
  // END 4.2
}

/// Replaces S by P (32, step) = exp2(S·scale - m) in this lane's row, and updates its m and l. P is 0 for keys from
/// keys_left on, which do not exist. Returns the factor that rescales O to the new m. scale includes log2(e).
/// new_maximum(m, largest) returns the new m, where `largest` is the largest scaled score of the step.
template <auto new_maximum, int d, int step>
__device__ __forceinline__ float online_softmax(Workspace<d, step>& workspace, RowState& row, int keys_left,
                                                float scale) {
  // TODO(4.3) Exercise 2.1 for this lane's row, whose scores are workspace.S[0][lane], workspace.S[1][lane], … P
  // overwrites S, so all lanes must have read S first (about 20 lines).
  // BEGIN 4.3
  const int lane = threadIdx.x % warp_size;
  float S[step];
  for (int j = 0; j < step; ++j) S[j] = workspace.S[j][lane];
  if (keys_left < step) {  // scaled here: -inf * scale is NaN or +inf for scale <= 0
    for (int j = 0; j < step; ++j) S[j] = j < keys_left ? S[j] * scale : -INFINITY;
    scale = 1;
  }
  const float m = new_maximum(row.m, largest_scaled(S, scale)), rescale = exp2_ftz(row.m - m);
  float sum = 0;
  for (int j = 0; j < step; ++j) {
    S[j] = exp2_ftz(S[j] * scale - m);  // P from here on
    sum += S[j];
  }
  row.m = m;
  row.l = rescale * row.l + sum;
  __syncwarp();  // all lanes have read S: P may overwrite it
  for (int j = 0; j < step; j += 8) reinterpret_cast<uint4*>(workspace.P[lane])[j / 8] = rounded(&S[j]);
  __syncwarp();  // P is visible to all lanes
  return rescale;
  // END 4.3
}

/// Multiplies each row of O (32, d) by its factor; lane r has the factor of row r.
template <int d>
__device__ __forceinline__ void rescale_O(Fragments<d>& fragments, const float (&row_index)[side][side],
                                          float rescale) {
  // TODO(4.4) Return if the factors of all lanes are 1. Otherwise load row_index as an accumulator: its element e is
  // the row of element e of every accumulator. Get the factor from the lane of that row (about 9 lines).
  // BEGIN 4.4
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
  // END 4.4
}

/// O += P V for this warp's rows and `step` keys of the tile from first_key on: (32, step), (step, d) -> (32, d).
template <int d, int step, int Bc>
__device__ __forceinline__ void accumulate_PV(Workspace<d, step>& workspace, Fragments<d>& fragments,
                                              const Element (&V)[Bc][d + pad_half], int first_key) {
  // TODO(4.5) Accumulate into the fragments of O and store nothing. The next step stores its S over P
  // (about 11 lines).
  // BEGIN 4.5
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
  // END 4.5
}

/// Writes O / l, rounded, and the LSE, (m + log2 l) ln 2, to device memory, for the first `rows` of this warp's rows:
/// (32, d) and (32).
template <int d, int step>
__device__ __forceinline__ void write_output(Workspace<d, step>& workspace, const Fragments<d>& fragments,
                                             const RowState& row, Element* __restrict__ O_rows,
                                             float* __restrict__ lse_rows, int rows) {
  // TODO(4.6) The LSE. Then, for each group of `columns` columns: store the fragments to workspace.O. Each lane then
  // reads eight adjacent elements, multiplies them by 1 / l of their row, and stores 16 bytes (about 19 lines).
  // BEGIN 4.6
  constexpr int columns = Workspace<d, step>::columns, chunks = columns / 8;
  const int lane = threadIdx.x % warp_size, chunk = lane % chunks;
  if (lane < rows) lse_rows[lane] = (row.m + log2f(row.l)) * ln_2;
  const float inverse = row.l == 0 ? 0 : 1 / row.l;
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
  // END 4.6
}

/// Issues the asynchronous copy of rows x d elements from device memory to a tile (tile_rows, d) in shared memory. The
/// remaining rows of the tile become zeros. `threads` threads copy together; the caller is number `thread` of them.
template <int threads, int tile_rows, int columns>
__device__ __forceinline__ void copy_tile(Element (&tile)[tile_rows][columns], const Element* __restrict__ source,
                                          int rows, int thread) {
  constexpr int d = columns - pad_half;
  // TODO(4.7) Copy each 16 bytes by __pipeline_memcpy_async(to, from, 16, zeros). The last `zeros` bytes are not read
  // and become 0: all 16 in a row that does not exist (about 6 lines).
  // BEGIN 4.7
  const int first_row = thread / (d / 8), chunk = thread % (d / 8);  // a chunk is 16 bytes, eight elements
  const uint4* from = reinterpret_cast<const uint4*>(source) + first_row * (d / 8) + chunk;
#pragma unroll 8  // more addresses at once would not fit the registers
  for (int i = 0; i < tile_rows; i += threads / (d / 8)) {
    const int row = first_row + i;
    __pipeline_memcpy_async(&reinterpret_cast<uint4*>(tile[row])[chunk], from + i * (d / 8), 16, row < rows ? 0 : 16);
  }
  // END 4.7
}

}  // namespace
}  // namespace ch04
