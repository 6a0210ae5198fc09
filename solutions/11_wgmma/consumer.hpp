// Chapter 11, given: a consumer's matrices, and the steps of its loop by the names that the algorithm has for them.
#pragma once

#include "phases.hpp"

namespace ch11 {
namespace {

using workbook::cuda::elect_sync;

/// Consumer number `number` of a block. begin() gives it a tile of queries: 64 rows of Q from first_query on, against
/// the tile's keys.
template <class T>
struct Consumer {
  typename T::Shared& smem;
  const Call& call;
  int number, first_query, tiles;
  typename T::Scores S;
  typename T::Probabilities P;
  typename T::Output O;
  float m[2], l[2], rescale[2];
  Position<T::stages> at_K, at_V;

  __device__ __forceinline__ Consumer(typename T::Shared& shared, const Call& numbers, int own)
      : smem(shared), call(numbers), number(own) {}
  __device__ __forceinline__ void begin(const Work<T>& work) {
    first_query = work.first_query + 64 * number, tiles = work.tiles;
    O.fill(0);
    m[0] = m[1] = -INFINITY, l[0] = l[1] = 0;
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
  /// Nor Q and its number. A lane has read that, not the tensor cores for all of them: hence __syncwarp.
  __device__ __forceinline__ void leave_Q() {
    if constexpr (T::persistent) {
      __syncwarp();
      if (elect_sync()) mbarrier_arrive(smem.Q_empty);
    }
  }
  __device__ __forceinline__ void start_S() { start_QK<T>(S, smem.Q[number], smem.K[at_K.stage]); }  // S = Q Kᵀ
  __device__ __forceinline__ void start_O() { start_PV<T>(O, P, smem.V[at_V.stage]); }               // O += P V
  /// S of tile j becomes P in fp32; m and l. It is masked where some row does not see all keys. When S of the last
  /// tile, j = 0, is there, no product reads Q any more.
  __device__ __forceinline__ void softmax(int j) {
    if (j == 0) leave_Q();
    const int keys = call.Nk - j * T::Bc,
              visible = call.causal ? first_query + 1 + call.Nk - call.Nq - j * T::Bc : keys;
    if (call.negative)
      for (int e = 0; e < T::Bc / 2; ++e) S[e] = -S[e];
    if (min(keys, visible) < T::Bc) {
      workbook::cuda::note("masked tile", j);
      mask_unseen(S, keys, visible);
    }
    online_softmax(S, m, l, rescale, call.scale, T::slack);
  }
};

}  // namespace
}  // namespace ch11
