// Chapter 16, backward, given: P and dS of a block as operands. In a partial block, form_operands evaluates the
// predicate for each pair.
#pragma once

#include "scores.hpp"

namespace ch16 {
namespace {

/// Computes P and dS as operands, for the 32 keys of this warp from warp_key on and the `queries` queries from q on of
/// the Q tile in `buffer`. In their head, these keys and queries start at first_key and first_query. Stores dSᵀ for dQ,
/// and Pᵀ for the team's other warp.
template <class T, class MaskMod>
__device__ __forceinline__ void form_operands(Operands<T::parts>& P, Operands<T::parts>& dS, GradientShared<T>& smem,
                                              int buffer, int warp_key, int q, float scale_log2,
                                              const PairMask<MaskMod>& mask, bool partial, int first_key,
                                              int first_query) {
  Result<T::parts> S, dP;
  multiply_transposed<T::parts>(S, smem.K, warp_key, smem.Q[buffer], q);    // Sᵀ = K Qᵀ, (32, queries)
  multiply_transposed<T::parts>(dP, smem.V, warp_key, smem.dO[buffer], q);  // dPᵀ = V dOᵀ, (32, queries)
  // Queries past the end need no mask: their LSE is +inf, so P is 0.
  if (partial) {
    workbook::cuda::note("masked tile", first_query / T::Br);
    form_P_and_dS<true, T::parts>(S, dP, smem.row_stats[buffer] + q, scale_log2, mask, first_key, first_query);
  } else {
    form_P_and_dS<false, T::parts>(S, dP, smem.row_stats[buffer] + q, scale_log2, mask, first_key, first_query);
  }
  round_to_operands<T::parts>(P, S);
  round_to_operands<T::parts>(dS, dP);
  store_operands<T::parts>(smem.dS[buffer], warp_key, q, dS);
  if constexpr (T::team == 2) store_operands<T::parts>(smem.P, warp_key, q, P);
}

}  // namespace
}  // namespace ch16
