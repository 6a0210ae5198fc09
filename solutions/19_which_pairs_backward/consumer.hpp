// Chapter 19, given: a consumer's matrices, and the steps of its loop by the names that the algorithm has for them.
#pragma once

#include "dQ.hpp"
#include "phases.hpp"

namespace ch19 {
namespace {

/// Consumer number `number` of a block: 64 keys against the Q tiles of all steps.
template <class T>
struct Consumer {
  typename T::Shared& smem;
  const Call& call;
  const Work<T>& work;
  const typename T::Change& any_head;
  int number, own;  ///< its keys begin with the block's key number `own`
  Step step;
  typename T::Change change;  ///< of the step's head
  typename T::Scores S, dP;
  typename T::Operand P, dS;
  typename T::Gradient dK, dV;
  typename T::HalfOfdQ dQ;
  OfQueries<T::Br / 8, T::d == 128> lse, D;
  Position<T::stages> at;  // the stage of Q and dO

  __device__ __forceinline__ Consumer(typename T::Shared& shared, const Call& numbers, const Work<T>& all,
                                      const typename T::Change& of_any_head, int i)
      : smem(shared),
        call(numbers),
        work(all),
        any_head(of_any_head),
        number(i),
        own(64 * i),
        step(all.first_step()),
        change(change_of(step.head)) {
    dK.fill(0), dV.fill(0);
  }
  __device__ __forceinline__ typename T::Change change_of(int head) const {
    return any_head.of_head(head % call.given.heads, call.given.heads);
  }

  /// Waits until the next Q is there, with its LSE; the next dO, with its D. The first time, also for K and V.
  __device__ __forceinline__ void wait_Q(int i) {
    if (i == 0) mbarrier_wait_parity(smem.K_full, 0);
    mbarrier_wait_parity(smem.Q_full[at.stage], at.parity);
  }
  __device__ __forceinline__ void wait_dO(int i) {
    if (i == 0) mbarrier_wait_parity(smem.V_full, 0);
    mbarrier_wait_parity(smem.dO_full[at.stage], at.parity);
  }
  /// This warp will not read these tiles any more, nor what came with them: one lane says so, when all have read. Then
  /// the next step comes, perhaps of another head.
  __device__ __forceinline__ void leave() {
    __syncwarp();  // all lanes have read the LSE and D
    if (threadIdx.x % 32 == 0) mbarrier_arrive(smem.empty[at.stage]);
    at.advance();
    const int head = step.head;
    work.advance(step);
    if (step.head != head) change = change_of(step.head);
  }
  __device__ __forceinline__ void start_S() { start_scores<T>(S, smem.K, own, smem.Q[at.stage]); }     // Sᵀ = K Qᵀ
  __device__ __forceinline__ void start_dP() { start_scores<T>(dP, smem.V, own, smem.dO[at.stage]); }  // dPᵀ = V dOᵀ
  __device__ __forceinline__ void start_dK() { start_sum<T>(dK, dS, smem.Q[at.stage]); }               // dK += dSᵀ Q
  __device__ __forceinline__ void start_half_of_dQ() { start_dQ<T>(dQ, smem.dS[at.stage], smem.K, number); }
  __device__ __forceinline__ void load_lse() { lse.load(smem.lse[at.stage]); }
  __device__ __forceinline__ void load_D() { D.load(smem.D[at.stage]); }
};

/// Pᵀ of this step, of its sixteens of queries from begin to end - 1: rounded, and in S as dS takes it. Each pair is
/// asked where some query does not see all keys.
template <int begin, int end, class T>
__device__ __forceinline__ void form_P(Consumer<T>& own) {
  const int first_query = own.step.q_tile * T::Br, first_key = own.work.first_key + own.own;
  const OfKeys keys(own.work.seen, first_key, first_query);
  if (own.work.seen.all_see({first_query, first_query + T::Br}, {first_key, first_key + 64})) {
    exponentiate<false, 2 * begin, 2 * end>(own.P, own.S, own.lse, own.change, keys);
  } else {
    if (begin == 0) workbook::cuda::note("masked tile", own.step.q_tile);
    exponentiate<true, 2 * begin, 2 * end>(own.P, own.S, own.lse, own.change, keys);
  }
}
/// dV += Pᵀ dO over these sixteens of queries.
template <int begin, int end, class T>
__device__ __forceinline__ void start_dV(Consumer<T>& own) {
  start_sum<T, begin, end>(own.dV, own.P, own.smem.dO[own.at.stage]);
}
/// dSᵀ from Pᵀ and dPᵀ, rounded, and its place in shared memory for this step.
template <class T>
__device__ __forceinline__ void form_dS(Consumer<T>& own) {
  differentiate(own.dP, own.S, own.D);
  round_dS(own.dS, own.dP);
  store_dS(own.smem.dS[own.at.stage][own.number], own.dS);
}

}  // namespace
}  // namespace ch19
