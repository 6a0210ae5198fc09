// Chapter 19, given: a consumer's fragments, and the calls of its loop under the names of the algorithm.
#pragma once

#include "dQ.hpp"
#include "phases.hpp"

namespace ch19 {
namespace {

/// Consumer `index` of a block: a warpgroup with 64 keys, which loops over the block's Q tiles.
template <class T>
struct Consumer {
  typename T::Shared& smem;
  const Call& call;
  const WorkTile<T>& work;
  const typename T::ScoreMod& base_mod;  ///< for any head
  int index, first_key;                  ///< first_key: its first key, within the K/V tile
  Step step;
  typename T::ScoreMod score_mod;  ///< for the head of `step`
  typename T::Scores S, dP;
  typename T::Operands P, dS;
  typename T::Gradient dK, dV;
  typename T::DQHalf dQ;
  QueryStats<T::Br / 8, T::d == 128> lse, D;
  Position<T::stages> position;  // in the ring of Q and dO

  __device__ __forceinline__ Consumer(typename T::Shared& shared, const Call& parameters, const WorkTile<T>& tile,
                                      const typename T::ScoreMod& mod, int i)
      : smem(shared),
        call(parameters),
        work(tile),
        base_mod(mod),
        index(i),
        first_key(64 * i),
        step(tile.first_step()),
        score_mod(score_mod_for(step.head)) {
    dK.fill(0), dV.fill(0);
  }
  __device__ __forceinline__ typename T::ScoreMod score_mod_for(int head) const {
    return base_mod.for_head(head % call.problem.heads, call.problem.heads);
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
  /// Releases the stage of Q, LSE, dO and D for this warp: one lane arrives at `empty`. Then moves to the next stage
  /// and the next step, which may be of another head.
  __device__ __forceinline__ void release_stage() {
    __syncwarp();  // all lanes have read LSE and D
    if (threadIdx.x % 32 == 0) mbarrier_arrive(smem.empty[position.stage]);
    position.advance();
    const int head = step.head;
    work.advance(step);
    if (step.head != head) score_mod = score_mod_for(step.head);
  }
  __device__ __forceinline__ void start_S() {
    start_scores<T>(S, smem.K, first_key, smem.Q[position.stage]);
  }  // Sᵀ = K Qᵀ
  __device__ __forceinline__ void start_dP() {
    start_scores<T>(dP, smem.V, first_key, smem.dO[position.stage]);
  }  // dPᵀ = V dOᵀ
  __device__ __forceinline__ void start_dK() { start_accumulate<T>(dK, dS, smem.Q[position.stage]); }  // dK += dSᵀ Q
  __device__ __forceinline__ void start_dQ_half() { start_dQ<T>(dQ, smem.dS[position.stage], smem.K, index); }
  __device__ __forceinline__ void load_lse() { lse.load(smem.lse[position.stage]); }
  __device__ __forceinline__ void load_D() { D.load(smem.D[position.stage]); }
};

/// Computes Pᵀ of this step: rounded in P, and times the derivative in S, for the operands of 16 queries from begin to
/// end - 1. Tests each pair, unless all queries attend to all 64 keys.
template <int begin, int end, class T>
__device__ __forceinline__ void form_P(Consumer<T>& consumer) {
  const int first_query = consumer.step.q_tile * T::Br, first_key = consumer.work.first_key + consumer.first_key;
  const LaneKeys keys(consumer.work.mask, first_key, first_query);
  if (consumer.work.mask.is_full({first_query, first_query + T::Br}, {first_key, first_key + 64})) {
    exponentiate<false, 2 * begin, 2 * end>(consumer.P, consumer.S, consumer.lse, consumer.score_mod, keys);
  } else {
    if (begin == 0) workbook::cuda::note("masked tile", consumer.step.q_tile);
    exponentiate<true, 2 * begin, 2 * end>(consumer.P, consumer.S, consumer.lse, consumer.score_mod, keys);
  }
}
/// Starts dV += Pᵀ dO over the operands of 16 queries from begin to end - 1.
template <int begin, int end, class T>
__device__ __forceinline__ void start_dV(Consumer<T>& consumer) {
  start_accumulate<T, begin, end>(consumer.dV, consumer.P, consumer.smem.dO[consumer.position.stage]);
}
/// Computes dSᵀ from (P·derivative)ᵀ and dPᵀ, rounds it to dS, and stores it to the dS buffer of this stage.
template <class T>
__device__ __forceinline__ void form_dS(Consumer<T>& consumer) {
  differentiate(consumer.dP, consumer.S, consumer.D);
  round_to_operands(consumer.dS, consumer.dP);
  store_dS(consumer.smem.dS[consumer.position.stage][consumer.index], consumer.dS);
}

}  // namespace
}  // namespace ch19
