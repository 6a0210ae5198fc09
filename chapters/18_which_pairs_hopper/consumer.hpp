// Chapter 18: a consumer's matrices, the tiles of keys that it takes part in, and the steps of its loop by the names
// that the algorithm has for them.
#pragma once

#include "phases.hpp"

namespace ch18 {
namespace {

using workbook::cuda::elect_sync;

/// Consumer number `number` of a block. begin() gives it 64 rows of a tile of queries, from first_query on. Of the
/// block's tiles of keys they need only `tiles`, and in those that are `full_tiles` too every row sees every key.
template <class T>
struct Consumer {
  typename T::Shared& smem;
  typename T::Change change;
  int number, first_query;
  SeenKeys seen;
  Range block_tiles, tiles, full_tiles;
  typename T::Scores S;
  typename T::Probabilities P;
  typename T::Output O;
  float m[2], l[2], rescale[2];
  Position<T::stages> at_K, at_V;

  __device__ __forceinline__ Consumer(typename T::Shared& shared, const typename T::Change& of_any_head, int own_number)
      : smem(shared), change(of_any_head), number(own_number) {}

  /// The tiles of its rows. For rows that do not exist, or see no key, none: an empty range within the block's.
  __device__ __forceinline__ void begin(const Work& work) {
    first_query = read_once(work.first_query) + 64 * number;
    seen = {read_once(work.seen.Nq), read_once(work.seen.Nk), read_once(work.seen.left), read_once(work.seen.right)};
    block_tiles = {read_once(work.tiles.first), read_once(work.tiles.last)};
    tiles = full_tiles = {block_tiles.first, block_tiles.first};
    const Range queries{first_query, min(seen.Nq, first_query + 64)};
    if (queries.first >= queries.last) return;
    const Range needed = seen.template tiles<T::Bc>(queries);
    if (needed.first < needed.last) tiles = needed;
    full_tiles = seen.template full_tiles<T::Bc>(queries);
  }
  /// The state before the first key. The sink, in units of log2, is a score without a key: it counts in m and l and
  /// adds nothing to O. l is a sum over the columns of this lane alone: one lane of a quad begins with the sink's 1.
  /// -inf: there is none, and what it adds to l is 0 at the first key's m.
  __device__ __forceinline__ void begin_with_sink(float sink) {
    O.fill(0);
    m[0] = m[1] = sink;
    l[0] = l[1] = mov_tid_x() % 4 == 0 ? 1.0F : 0.0F;
  }

  /// Waits until the next tile of K, or of V, is there.
  __device__ __forceinline__ void wait_K() { mbarrier_wait_parity(smem.K_full[at_K.stage], at_K.parity); }
  __device__ __forceinline__ void wait_V() { mbarrier_wait_parity(smem.V_full[at_V.stage], at_V.parity); }
  /// This warp will not read that tile any more: one lane says so, for all that its warp has done.
  __device__ __forceinline__ void leave_K() {
    if (elect_sync()) mbarrier_arrive(smem.K_empty[at_K.stage]);
    at_K.advance();
  }
  __device__ __forceinline__ void leave_V() {
    if (elect_sync()) mbarrier_arrive(smem.V_empty[at_V.stage]);
    at_V.advance();
  }
  /// Nor Q, nor what there was to do before this tile of queries. A lane has read that, not the tensor cores for all of
  /// them: hence __syncwarp.
  __device__ __forceinline__ void leave_Q() {
    __syncwarp();
    if (elect_sync()) mbarrier_arrive(smem.Q_empty);
  }
  __device__ __forceinline__ void start_S() { start_QK<T>(S, smem.Q[number], smem.K[at_K.stage]); }  // S = Q Kᵀ
  __device__ __forceinline__ void start_O() { start_PV<T>(O, P, smem.V[at_V.stage]); }               // O += P V
  /// S of tile j becomes P in fp32; m and l. Each pair is asked where some row does not see all keys. Scores that are
  /// only scaled are left to online_softmax, which wants a scale > 0. When S of the last tile is there, no product
  /// reads Q any more.
  __device__ __forceinline__ void softmax(int j) {
    if (j == tiles.first) leave_Q();
    const bool changed = T::Change::of_each_score || change.scale <= 0;
    if (changed) change_scores(S, change, seen, first_query, j * T::Bc);
    if (j < full_tiles.first || full_tiles.last <= j) {
      workbook::cuda::note("masked tile", j);
      mask_scores(S, seen, first_query, j * T::Bc);
    }
    online_softmax(S, m, l, rescale, changed ? 1 : change.scale, slack);
  }
};

}  // namespace
}  // namespace ch18
