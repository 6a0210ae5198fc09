// Chapter 11, given: a consumer's registers, and the calls of its main loop, named as in the algorithm.
#pragma once

#include "phases.hpp"

namespace ch11 {
namespace {

using workbook::cuda::elect_sync;

/// Consumer warpgroup number `index` of a thread block. begin() starts a Q tile: this consumer computes the 64 rows
/// from first_query on, against the first kv_tiles K/V tiles.
template <class T>
struct Consumer {
  typename T::Shared& smem;
  const Call& call;
  int index, first_query, kv_tiles;
  typename T::Scores S;
  typename T::Probabilities P;
  typename T::Output O;
  float m[2], l[2], rescale[2];
  Position<T::stages> K_position, V_position;

  __device__ __forceinline__ Consumer(typename T::Shared& shared, const Call& arguments, int consumer_index)
      : smem(shared), call(arguments), index(consumer_index) {}
  __device__ __forceinline__ void begin(const WorkTile<T>& work) {
    first_query = work.first_query + 64 * index, kv_tiles = work.kv_tiles;
    O.fill(0);
    m[0] = m[1] = -INFINITY, l[0] = l[1] = 0;
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
  /// Releases Q and the tile index. A lane has read the index with an ordinary load, so the warp synchronises first.
  __device__ __forceinline__ void release_Q() {
    if constexpr (T::persistent) {
      __syncwarp();
      if (elect_sync()) mbarrier_arrive(smem.Q_empty);
    }
  }
  __device__ __forceinline__ void start_S() { start_QK<T>(S, smem.Q[index], smem.K[K_position.stage]); }  // S = Q Kᵀ
  __device__ __forceinline__ void start_O() { start_PV<T>(O, P, smem.V[V_position.stage]); }              // O += P V
  /// Replaces S of tile j by P in fp32, and updates m, l and rescale. Masks S if some row does not see all keys of the
  /// tile. Once S of the last tile, j = 0, is complete, no matmul reads Q any more, so Q is released here.
  __device__ __forceinline__ void softmax(int j) {
    if (j == 0) release_Q();
    const int keys = call.Nk - j * T::Bc,
              visible = call.causal ? first_query + 1 + call.Nk - call.Nq - j * T::Bc : keys;
    if (call.negative)
      for (int e = 0; e < T::Bc / 2; ++e) S[e] = -S[e];
    if (min(keys, visible) < T::Bc) {
      workbook::cuda::note("masked tile", j);
      mask_scores(S, keys, visible);
    }
    online_softmax(S, m, l, rescale, call.scale, T::slack);
  }
};

}  // namespace
}  // namespace ch11
