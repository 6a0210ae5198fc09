// Chapter 18, given: a consumer's registers, the K/V tiles that its rows need, and the steps of its main loop, named as
// in the algorithm.
#pragma once

#include "phases.hpp"

namespace ch18 {
namespace {

using workbook::cuda::elect_sync;

/// Consumer warpgroup number `index` of a thread block. begin() starts a Q tile: this consumer computes the 64 rows
/// from first_query on. Of the block's K/V tiles, block_tiles, these rows need kv_tiles. In full_tiles every row
/// attends to every key.
template <class T>
struct Consumer {
  typename T::Shared& smem;
  typename T::ScoreMod score_mod;
  int index, first_query;
  WindowMask mask;
  Range block_tiles, kv_tiles, full_tiles;
  typename T::Scores S;
  typename T::Probabilities P;
  typename T::Output O;
  float m[2], l[2], rescale[2];
  Position<T::stages> K_position, V_position;

  __device__ __forceinline__ Consumer(typename T::Shared& shared, const typename T::ScoreMod& base_mod,
                                      int consumer_index)
      : smem(shared), score_mod(base_mod), index(consumer_index) {}
  /// Sets the ranges of K/V tiles. Rows that do not exist, or attend to no key, need an empty range within the block's.
  __device__ __forceinline__ void begin(const WorkTile& work) {
    first_query = read_once(work.first_query) + 64 * index;
    mask = {read_once(work.mask.Nq), read_once(work.mask.Nk), read_once(work.mask.left), read_once(work.mask.right)};
    block_tiles = {read_once(work.kv_tiles.first), read_once(work.kv_tiles.last)};
    kv_tiles = full_tiles = {block_tiles.first, block_tiles.first};
    const Range queries{first_query, min(mask.Nq, first_query + 64)};
    if (queries.first >= queries.last) return;
    const Range needed = mask.template kv_tiles<T::Bc>(queries);
    if (needed.first < needed.last) kv_tiles = needed;
    full_tiles = mask.template full_tiles<T::Bc>(queries);
  }
  /// The state before the first key. The sink, in units of log2, is a score without a key: it contributes to m and l,
  /// but not to O. l sums only this lane's columns, so one lane of a quad starts with the sink's 1. -inf means no sink:
  /// the first key then multiplies l by 0.
  __device__ __forceinline__ void begin_with_sink(float sink) {
    O.fill(0);
    m[0] = m[1] = sink;
    l[0] = l[1] = mov_tid_x() % 4 == 0 ? 1.0F : 0.0F;
  }

  /// Waits until the next tile of K, or of V, has been loaded.
  __device__ __forceinline__ void wait_K() { mbarrier_wait_parity(smem.K_full[K_position.stage], K_position.parity); }
  __device__ __forceinline__ void wait_V() { mbarrier_wait_parity(smem.V_full[V_position.stage], V_position.parity); }
  /// Releases the stage: this warp has finished reading the tile. One lane arrives for its warp.
  __device__ __forceinline__ void release_K() {
    if (elect_sync()) mbarrier_arrive(smem.K_empty[K_position.stage]);
    K_position.advance();
  }
  __device__ __forceinline__ void release_V() {
    if (elect_sync()) mbarrier_arrive(smem.V_empty[V_position.stage]);
    V_position.advance();
  }
  /// Releases Q and the previous work tile. A lane has read the latter with ordinary loads, so the warp synchronises
  /// first.
  __device__ __forceinline__ void release_Q() {
    __syncwarp();
    if (elect_sync()) mbarrier_arrive(smem.Q_empty);
  }
  __device__ __forceinline__ void start_S() { start_QK<T>(S, smem.Q[index], smem.K[K_position.stage]); }  // S = Q Kᵀ
  __device__ __forceinline__ void start_O() { start_PV<T>(O, P, smem.V[V_position.stage]); }              // O += P V
  /// Replaces S of tile j by P in fp32, and updates m, l and rescale. Masks S if some row does not attend to all keys
  /// of the tile. If the scores are only scaled, online_softmax scales them. It needs a scale > 0. Once S of the last
  /// tile, kv_tiles.first, is complete, no matmul reads Q any more, so Q is released here.
  __device__ __forceinline__ void softmax(int j) {
    if (j == kv_tiles.first) release_Q();
    const bool modified = T::ScoreMod::modifies_scores || score_mod.scale <= 0;
    if (modified) apply_score_mod(S, score_mod, mask, first_query, j * T::Bc);
    if (j < full_tiles.first || full_tiles.last <= j) {
      workbook::cuda::note("masked tile", j);
      mask_scores(S, mask, first_query, j * T::Bc);
    }
    online_softmax(S, m, l, rescale, modified ? 1 : score_mod.scale, slack);
  }
};

}  // namespace
}  // namespace ch18
