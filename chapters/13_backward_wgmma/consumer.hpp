// Chapter 13, given: a consumer's matrices, and the steps of its loop by the names that the algorithm has for them.
#pragma once

#include "dQ.hpp"
#include "phases.hpp"

namespace ch13 {
namespace {

/// Consumer number `number` of a block: 64 keys against all Q tiles.
template <class T>
struct Consumer {
  typename T::Shared& smem;
  const Call& call;
  const Work<T>& work;
  int number, own, keys;  ///< its keys begin with the block's key number `own`; so many of them exist
  typename T::Scores S, dP;
  typename T::Operand P, dS;
  typename T::Gradient dK, dV;
  typename T::HalfOfdQ dQ;
  OfQueries<T::Br / 8, T::d == 128> lse, D;
  Position<T::stages> at;  // the stage of Q and dO

  __device__ __forceinline__ Consumer(typename T::Shared& shared, const Call& numbers, const Work<T>& all, int i)
      : smem(shared), call(numbers), work(all), number(i), own(64 * i), keys(numbers.Nk - all.first_key - 64 * i) {
    dK.fill(0), dV.fill(0);
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
  /// the next Q tile comes.
  __device__ __forceinline__ void leave() {
    __syncwarp();  // all lanes have read the LSE and D
    if (threadIdx.x % 32 == 0) mbarrier_arrive(smem.empty[at.stage]);
    at.advance();
  }
  __device__ __forceinline__ void start_S() { start_scores<T>(S, smem.K, own, smem.Q[at.stage]); }     // Sᵀ = K Qᵀ
  __device__ __forceinline__ void start_dP() { start_scores<T>(dP, smem.V, own, smem.dO[at.stage]); }  // dPᵀ = V dOᵀ
  __device__ __forceinline__ void start_dK() { start_sum<T>(dK, dS, smem.Q[at.stage]); }               // dK += dSᵀ Q
  __device__ __forceinline__ void start_half_of_dQ(int i) { start_dQ<T>(dQ, smem.dS[i % 2], smem.K, number); }
  __device__ __forceinline__ void load_lse() { lse.load(smem.lse[at.stage]); }
  __device__ __forceinline__ void load_D() { D.load(smem.D[at.stage]); }
};

/// Pᵀ of Q tile i, of its sixteens of queries from begin to end - 1: from S, in fp32 and rounded.
template <int begin, int end, class T>
__device__ __forceinline__ void form_P(Consumer<T>& own, int i) {
  const Call& call = own.call;
  exponentiate<2 * begin, 2 * end>(own.S, own.lse, call.scale_log2);
  const int first_query = (own.work.first + i) * T::Br;
  const int visible = call.causal ? first_query + 1 + own.keys - call.Nq : own.keys;
  if (min(own.keys, visible) < 64) {
    if (begin == 0) workbook::cuda::note("masked tile", i);
    mask_P<2 * begin, 2 * end>(own.S, own.keys, visible);
  }
  round<2 * begin, 2 * end>(own.P, own.S);
}
/// dV += Pᵀ dO over these sixteens of queries.
template <int begin, int end, class T>
__device__ __forceinline__ void start_dV(Consumer<T>& own) {
  start_sum<T, begin, end>(own.dV, own.P, own.smem.dO[own.at.stage]);
}
/// dSᵀ from Pᵀ and dPᵀ, rounded, and its place in shared memory for Q tile i.
template <class T>
__device__ __forceinline__ void form_dS(Consumer<T>& own, int i) {
  differentiate(own.dP, own.S, own.D);
  round<0, T::Br / 8>(own.dS, own.dP);
  store_dS(own.smem.dS[i % 2][own.number], own.dS);
}

}  // namespace
}  // namespace ch13
