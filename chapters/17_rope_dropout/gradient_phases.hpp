// Chapter 17, backward, given: the phases for one Q tile that are not in chapter 15's gradient_tiles.hpp, or differ:
// how a Q tile is copied, which columns a warp accumulates (Plan::column), and the causal mask.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1.2, Algorithm 2.
#pragma once

#include <cstdint>

#include "gradient_pairs.hpp"
#include "phases.hpp"

namespace ch17 {
namespace {

/// Starts to copy Q tile i of a head into buffer i % 2: Q and dO, (Br, d) each, and its row statistics.
template <class T>
__device__ __forceinline__ void load_q_tile(GradientShared<T>& smem, const Element* __restrict__ Q,
                                            const Element* __restrict__ dO, const float2* __restrict__ row_stats, int i,
                                            int Nq) {
  const std::int64_t first = std::int64_t(i) * T::Br * T::d;
  load_tile<T::threads>(smem.Q[i % 2], Q + first, Nq - i * T::Br, threadIdx.x);
  load_tile<T::threads>(smem.dO[i % 2], dO + first, Nq - i * T::Br, threadIdx.x);
  const int query = 2 * threadIdx.x;  // 16 bytes: two queries; row_stats is padded to whole Q tiles
  if (query < T::Br) cp_async_16(&smem.row_stats[i % 2][query], row_stats + i * T::Br + query);
}

/// C += A B: (32, 8·parts), (8·parts, columns) -> (32, columns), where B is the tile from `row` on, in the columns of
/// warp `team_rank` of a team.
template <class T, int rows>
__device__ __forceinline__ void accumulate(Result<T::columns / 8>& C, const Operands<T::parts>& A,
                                           Element (&B)[rows][T::d], int row, int team_rank) {
#pragma unroll
  for (int k = 0; k < T::parts / 2; ++k)
#pragma unroll
    for (int j = 0; j < T::columns / 16; ++j) {
      Operand right;
      load_B_by_rows(right, B, row + 16 * k, T::column(team_rank, 2 * j));
      multiply_16<T::columns / 8>(C, j, A[0][k], A[1][k], right);
    }
}

/// The first Q tile of a head with an unmasked pair, even if that tile does not exist. Query i attends to keys up to
/// i + diagonal, counted from the first key of the K/V tile.
template <class T>
__device__ __forceinline__ int first_q_tile(int diagonal, bool causal) {
  return causal ? max(0, -diagonal) / T::Br : 0;
}
/// The mask of Q tile i of a head, for the keys from warp_key on and the queries from q on, both within their tiles.
/// `keys` keys exist from the start of the K/V tile on.
template <class T>
__device__ __forceinline__ Mask mask_of(int i, int warp_key, int q, int keys, int diagonal, bool causal) {
  const int first_query = i * T::Br;
  const bool needed = keys < T::Bc || (causal && first_query + diagonal < T::Bc - 1);
  return {needed, keys - warp_key, causal ? first_query + q + diagonal - warp_key : T::Bc};
}

/// Computes P and dS as operands, for the 32 keys of this warp from warp_key on and the `queries` queries from q on of
/// Q tile i. Stores dSᵀ for dQ, and Pᵀ for the team's other warp.
template <class T>
__device__ __forceinline__ void form_operands(Operands<T::parts>& P, Operands<T::parts>& dS, GradientShared<T>& smem,
                                              int i, int warp_key, int q, float scale, const Mask& mask,
                                              const Dropout& dropout, const Pairs& pairs) {
  const int buffer = i % 2;
  Result<T::parts> S, dP;
  multiply_transposed<T::parts>(S, smem.K, warp_key, smem.Q[buffer], q);    // Sᵀ = K Qᵀ, (32, queries)
  multiply_transposed<T::parts>(dP, smem.V, warp_key, smem.dO[buffer], q);  // dPᵀ = V dOᵀ, (32, queries)
  if (mask.needed) {
    workbook::cuda::note("masked tile", i);
    form_P_and_dS<T::parts>(S, dP, smem.row_stats[buffer] + q, scale, mask, dropout, pairs);
  } else {  // nothing to compare
    form_P_and_dS<T::parts>(S, dP, smem.row_stats[buffer] + q, scale, {false, 0, 0}, dropout, pairs);
  }
  round_to_operands<T::parts>(P, S);
  round_to_operands<T::parts>(dS, dP);
  store_operands<T::parts>(smem.dS[buffer], warp_key, q, dS);
  if constexpr (T::team == 2) store_operands<T::parts>(smem.P, warp_key, q, P);
}

/// Writes C·scale, rounded, to the columns of warp `team_rank` of a team: the first `rows` of 32 rows of a gradient.
template <class T>
__device__ __forceinline__ void write_gradient(Element* __restrict__ gradient, const Result<T::columns / 8>& C,
                                               float scale, int rows, int team_rank) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const auto [row, column] = position_in_part(lane, e);
      if (16 * i + row >= rows) continue;
#pragma unroll
      for (int j = 0; j < T::columns / 8; ++j)
        *reinterpret_cast<std::uint32_t*>(gradient + (16 * i + row) * T::d + T::column(team_rank, j) + column) =
            cvt_rn_x2<Element>(C[i][j][e] * scale, C[i][j][e + 1] * scale);
    }
}

}  // namespace
}  // namespace ch17
