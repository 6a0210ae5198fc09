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
  WORKBOOK_TODO(4.1);
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
  WORKBOOK_TODO(4.2);
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
  WORKBOOK_TODO(4.3);
  // END 4.3
}

/// Multiplies each row of O (32, d) by its factor; lane r has the factor of row r.
template <int d>
__device__ __forceinline__ void rescale_O(Fragments<d>& fragments, const float (&row_index)[side][side],
                                          float rescale) {
  // TODO(4.4) Return if the factors of all lanes are 1. Otherwise load row_index as an accumulator: its element e is
  // the row of element e of every accumulator. Get the factor from the lane of that row (about 9 lines).
  // BEGIN 4.4
  WORKBOOK_TODO(4.4);
  // END 4.4
}

/// O += P V for this warp's rows and `step` keys of the tile from first_key on: (32, step), (step, d) -> (32, d).
template <int d, int step, int Bc>
__device__ __forceinline__ void accumulate_PV(Workspace<d, step>& workspace, Fragments<d>& fragments,
                                              const Element (&V)[Bc][d + pad_half], int first_key) {
  // TODO(4.5) Accumulate into the fragments of O and store nothing. The next step stores its S over P
  // (about 11 lines).
  // BEGIN 4.5
  WORKBOOK_TODO(4.5);
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
  WORKBOOK_TODO(4.6);
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
  WORKBOOK_TODO(4.7);
  // END 4.7
}

}  // namespace
}  // namespace ch04
