// Chapter 13, given: a consumer's fragments, and the calls of its loop under the names of the algorithm.
#pragma once

#include "dQ.hpp"
#include "phases.hpp"

namespace ch13 {
namespace {

/// Consumer `index` of a block: a warpgroup with 64 keys, which loops over the block's Q tiles.
template <class T>
struct Consumer {
  typename T::Shared& smem;
  const Call& call;
  const WorkTile<T>& work;
  int index, first_key, keys;  ///< first_key: its first key, within the K/V tile; keys: how many exist from there on
  typename T::Scores S, dP;
  typename T::Operands P, dS;
  typename T::Gradient dK, dV;
  typename T::DQHalf dQ;
  QueryStats<T::Br / 8, T::d == 128> lse, D;
  Position<T::stages> position;  // in the ring of Q and dO

  __device__ __forceinline__ Consumer(typename T::Shared& shared, const Call& parameters, const WorkTile<T>& tile,
                                      int i)
      : smem(shared),
        call(parameters),
        work(tile),
        index(i),
        first_key(64 * i),
        keys(parameters.Nk - tile.first_key - 64 * i) {
    dK.fill(0), dV.fill(0);
  }

  /// Wait for the next Q and its LSE, and for the next dO and its D. The first time also for K, and for V.
  __device__ __forceinline__ void wait_Q(int i) {
    if (i == 0) mbarrier_wait_parity(smem.K_full, 0);
    mbarrier_wait_parity(smem.Q_full[position.stage], position.parity);
  }
  __device__ __forceinline__ void wait_dO(int i) {
    if (i == 0) mbarrier_wait_parity(smem.V_full, 0);
    mbarrier_wait_parity(smem.dO_full[position.stage], position.parity);
  }
  /// Releases the stage of Q, LSE, dO and D for this warp: one lane arrives at `empty`. Then moves to the next stage.
  __device__ __forceinline__ void release_stage() {
    __syncwarp();  // all lanes have read LSE and D
    if (threadIdx.x % 32 == 0) mbarrier_arrive(smem.empty[position.stage]);
    position.advance();
  }
  __device__ __forceinline__ void start_S() {
    start_scores<T>(S, smem.K, first_key, smem.Q[position.stage]);
  }  // Sᵀ = K Qᵀ
  __device__ __forceinline__ void start_dP() {
    start_scores<T>(dP, smem.V, first_key, smem.dO[position.stage]);
  }  // dPᵀ = V dOᵀ
  __device__ __forceinline__ void start_dK() { start_accumulate<T>(dK, dS, smem.Q[position.stage]); }  // dK += dSᵀ Q
  __device__ __forceinline__ void start_dQ_half(int i) { start_dQ<T>(dQ, smem.dS[i % 2], smem.K, index); }
  __device__ __forceinline__ void load_lse() { lse.load(smem.lse[position.stage]); }
  __device__ __forceinline__ void load_D() { D.load(smem.D[position.stage]); }
};

/// Computes Pᵀ of Q tile i in S (fp32) and in P (rounded), for the operands of 16 queries from begin to end - 1.
template <int begin, int end, class T>
__device__ __forceinline__ void form_P(Consumer<T>& consumer, int i) {
  const Call& call = consumer.call;
  exponentiate<2 * begin, 2 * end>(consumer.S, consumer.lse, call.scale_log2);
  const int first_query = (consumer.work.q_begin + i) * T::Br;
  const int visible = call.causal ? first_query + 1 + consumer.keys - call.Nq : consumer.keys;
  if (min(consumer.keys, visible) < 64) {
    if (begin == 0) workbook::cuda::note("masked tile", i);
    mask_P<2 * begin, 2 * end>(consumer.S, consumer.keys, visible);
  }
  round_to_operands<2 * begin, 2 * end>(consumer.P, consumer.S);
}
/// Starts dV += Pᵀ dO over the operands of 16 queries from begin to end - 1.
template <int begin, int end, class T>
__device__ __forceinline__ void start_dV(Consumer<T>& consumer) {
  start_accumulate<T, begin, end>(consumer.dV, consumer.P, consumer.smem.dO[consumer.position.stage]);
}
/// Computes dSᵀ from Pᵀ and dPᵀ, rounds it to dS, and stores it to the dS buffer of Q tile i.
template <class T>
__device__ __forceinline__ void form_dS(Consumer<T>& consumer, int i) {
  differentiate(consumer.dP, consumer.S, consumer.D);
  round_to_operands<0, T::Br / 8>(consumer.dS, consumer.dP);
  store_dS(consumer.smem.dS[i % 2][consumer.index], consumer.dS);
}

}  // namespace
}  // namespace ch13
