// Chapter 6, the recomputing backward: simple_backward.cu for every d, and fast.
//
// What changes, step by step:
// - Several warps share a thread block, and with it the blocks that pass by; there is a place for two of those, so that
//   the next one is copied while one is used.
// - Only pairs of blocks are computed in which some query sees some key, and only those that need it are masked.
// - For d = 128 the gradients of 32 keys would fill the registers of a warp: two warps form a team, and halve them.
// - Where dQ_sum is given, dQ is added up by atomics as well (dQ_sum.hpp).
//
// Source: Dao 2023, section 3.1.2, Algorithm 2; section 3.2 for the parts of thread blocks and warps.
// Test it: ./workbook test 6
#include "backward.hpp"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "P_and_dS.hpp"
#include "dQ_sum.hpp"
#include "fragments.hpp"
#include "layout.hpp"
#include "streamed_rows.hpp"

namespace ch06 {
namespace {

using workbook::cuda::dynamic_shared, workbook::cuda::note;

/// dK and dV, a thread block for each K/V tile; the first ones, which the most queries see, go first. Where `fused`
/// is true, its part of dQ as well.
template <class T, bool fused, class Gradient>
__global__ void __launch_bounds__(T::threads, T::blocks)
    key_gradients(const Element* __restrict__ Q,      // (heads, Nq, d)
                  const Element* __restrict__ K,      // (heads, Nk, d)
                  const Element* __restrict__ V,      // (heads, Nk, d)
                  const Element* __restrict__ dO,     // (heads, Nq, d)
                  const QueryRow* __restrict__ rows,  // (heads, Nq)
                  Gradient* __restrict__ dK,          // (heads, Nk, d)
                  Gradient* __restrict__ dV,          // (heads, Nk, d)
                  float* dQ_sum,                      // (heads, Nq rounded up to 16, d), in fragments; if fused
                  std::int64_t Nq, std::int64_t Nk, float scale, bool causal) {
  auto& smem = dynamic_shared<KeyShared<T>>();
  const auto [head, tile] = place_of_block((Nk + T::resident - 1) / T::resident, causal);
  const std::int64_t first_key = tile * T::resident, K_row = head * Nk + first_key;
  const int keys = min(std::int64_t(T::resident), Nk - first_key);
  Streamed queries = streamed_rows<T::streamed>(true, first_key, keys, Nq, Nk, causal);
  if (fused && keys < T::resident) queries.all_until = 0;  // for dQ, dS of keys that do not exist has to be 0
  Q += head * Nq * T::d, dO += head * Nq * T::d, rows += head * Nq;

  load_tile<T::threads>(smem.K, K + K_row * T::d, keys);  // (resident, d)
  load_tile<T::threads>(smem.V, V + K_row * T::d, keys);  // (resident, d)
  load_q_tile(smem, 0, Q, dO, rows, queries.begin, Nq);
  __pipeline_commit();
  write_index<T::threads>(smem.index);
  __syncthreads();  // the index is there
  [[maybe_unused]] const Map map = learn_map(smem.index);
  const int part = threadIdx.x / lanes % T::team, own = threadIdx.x / lanes / T::team * warp_rows,
            column = part * T::columns;
  Accumulator dK_own[2][T::columns / 16], dV_own[2][T::columns / 16];  // (32, columns) per warp
  clear(dK_own), clear(dV_own);

  int stage = 0;
  for (std::int64_t query = queries.begin; query < queries.end; query += T::streamed, stage ^= 1) {
    // TODO(6.7) Wait until this Q tile is there for all warps, and all have used the one before it. Start to copy
    // the next one, if there is one, to the other place. Does this one need a mask? If it does, note it, and say which
    // pairs count: without the causal mask, all whose key exists. Form this warp's Sᵀ and dPᵀ, (32, 32), and from them
    // Pᵀ and dSᵀ. When the team has stored its own, add to this warp's columns of dV and dK (about 16 lines).
    // BEGIN 6.7
    __pipeline_wait_prior(0);
    __syncthreads();  // this Q tile is there, and the last one has been used: the next may take its place
    if (query + T::streamed < queries.end) load_q_tile(smem, stage ^ 1, Q, dO, rows, query + T::streamed, Nq);
    __pipeline_commit();
    const bool masked = query < queries.all_from || query + T::streamed > queries.all_until;
    if (masked) note("masked tile", query / T::streamed);
    const int diagonal = masked && causal ? query + (Nk - Nq) - first_key : T::resident;
    Accumulator P[2][2], dS[2][2];
    multiply_transposed(P, left_rows(smem.K, own), smem.Q[stage], warp_rows * part);    // Sᵀ, (32, 32)
    multiply_transposed(dS, left_rows(smem.V, own), smem.dO[stage], warp_rows * part);  // dPᵀ, (32, 32)
    P_and_dS_of_keys(smem, P, dS, own, warp_rows * part, smem.rows[stage], map, scale * log2_e,
                     {masked, keys, diagonal});
    team_barrier<T>();  // the team's P and dS are there
    accumulate(dV_own, smem.P, own, smem.dO[stage], column);
    accumulate(dK_own, smem.dS, own, smem.Q[stage], column);
    // END 6.7
    if constexpr (fused) {
      __syncthreads();  // dS of all keys is there
      add_dQ<T::d>(smem.dS, smem.K, dQ_sum, head, query, Nq);
    }
  }
  team_barrier<T>();  // P has been used: it makes room for what is written
  write_gradient<T::d>(dK + (K_row + own) * T::d, keys - own, column, scale, dK_own, smem.P, own + 16 * part);
  write_gradient<T::d>(dV + (K_row + own) * T::d, keys - own, column, 1, dV_own, smem.P, own + 16 * part);
}

/// dQ, a thread block for each Q tile; the last ones, which see the most keys, go first.
template <class T, class Gradient>
__global__ void __launch_bounds__(T::threads, T::blocks)
    query_gradients(const Element* __restrict__ Q,      // (heads, Nq, d)
                    const Element* __restrict__ K,      // (heads, Nk, d)
                    const Element* __restrict__ V,      // (heads, Nk, d)
                    const Element* __restrict__ dO,     // (heads, Nq, d)
                    const QueryRow* __restrict__ rows,  // (heads, Nq)
                    Gradient* __restrict__ dQ,          // (heads, Nq, d)
                    std::int64_t Nq, std::int64_t Nk, float scale, bool causal) {
  auto& smem = dynamic_shared<QueryShared<T>>();
  const std::int64_t tiles = (Nq + T::resident - 1) / T::resident;
  const auto [head, tile] = place_of_block(tiles, causal);
  const std::int64_t first_query = (tiles - 1 - tile) * T::resident, Q_row = head * Nq + first_query;
  const int queries = min(std::int64_t(T::resident), Nq - first_query);
  const Streamed keys = streamed_rows<T::streamed>(false, first_query, queries, Nq, Nk, causal);
  K += head * Nk * T::d, V += head * Nk * T::d;

  load_tile<T::threads>(smem.Q, Q + Q_row * T::d, queries);    // (resident, d)
  load_tile<T::threads>(smem.dO, dO + Q_row * T::d, queries);  // (resident, d)
  load_rows(smem.rows, rows + Q_row, queries);                 // (resident)
  if (keys.begin < keys.end) load_kv_tile(smem, 0, K, V, keys.begin, Nk);
  __pipeline_commit();
  write_index<T::threads>(smem.index);
  __pipeline_wait_prior(0);
  __syncthreads();  // the index and the QueryRows are there
  [[maybe_unused]] const Map map = learn_map(smem.index);
  const int part = threadIdx.x / lanes % T::team, own = threadIdx.x / lanes / T::team * warp_rows,
            column = part * T::columns;
  QueryRow row[2][elements];
#pragma unroll
  for (int e = 0; e < elements; ++e)
    row[0][e] = smem.rows[own + map.row[e]], row[1][e] = smem.rows[own + 16 + map.row[e]];
  [[maybe_unused]] const auto Q_own = left_rows<T::team == 1>(smem.Q, own),
                              dO_own = left_rows<T::team == 1>(smem.dO, own);
  Accumulator dQ_own[2][T::columns / 16];  // (32, columns) per warp
  clear(dQ_own);

  int stage = 0;
  for (std::int64_t key = keys.begin; key < keys.end; key += T::streamed, stage ^= 1) {
    // TODO(6.8) The same with the roles exchanged: K/V tiles pass, the last of which may have fewer keys, and the
    // left operands are Q_own and dO_own. Only dQ is added to (about 16 lines).
    // BEGIN 6.8
    __pipeline_wait_prior(0);
    __syncthreads();  // this K/V tile is there, and the last one has been used: the next may take its place
    if (key + T::streamed < keys.end) load_kv_tile(smem, stage ^ 1, K, V, key + T::streamed, Nk);
    __pipeline_commit();
    const bool masked = key < keys.all_from || key + T::streamed > keys.all_until;
    if (masked) note("masked tile", key / T::streamed);
    const int count = min(std::int64_t(T::streamed), Nk - key);
    const int diagonal = masked && causal ? first_query + (Nk - Nq) - key : T::streamed;
    Accumulator S[2][2], dS[2][2];
    multiply_transposed(S, Q_own, smem.K[stage], warp_rows * part);    // S, (32, 32)
    multiply_transposed(dS, dO_own, smem.V[stage], warp_rows * part);  // dP, (32, 32)
    dS_of_queries(smem, S, dS, own, warp_rows * part, row, scale * log2_e, {masked, count, diagonal});
    team_barrier<T>();  // the team's dS is there
    accumulate(dQ_own, smem.dS, own, smem.K[stage], column);
    // END 6.8
  }
  team_barrier<T>();  // dS has been used: it makes room for what is written
  write_gradient<T::d>(dQ + (Q_row + own) * T::d, queries - own, column, scale, dQ_own, smem.dS, own + 16 * part);
}

template <class T, bool fused, class Gradient>
void start_keys(const BackwardCall<Element, Gradient>& call, const QueryRow* rows, float* dQ_sum) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  workbook::cuda::launch(key_gradients<T, fused, Gradient>, blocks(B * H, Nk, T::resident), dim3(T::threads),
                         sizeof(KeyShared<T>), call.Q, call.K, call.V, call.dO, rows, call.dK, call.dV, dQ_sum, Nq, Nk,
                         call.scale, call.causal());
}
template <class T, class Gradient>
void start_queries(const BackwardCall<Element, Gradient>& call, const QueryRow* rows) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  workbook::cuda::launch(query_gradients<T, Gradient>, blocks(B * H, Nq, T::resident), dim3(T::threads),
                         sizeof(QueryShared<T>), call.Q, call.K, call.V, call.dO, rows, call.dQ, Nq, Nk, call.scale,
                         call.causal());
}

/// Calls work with the Plan of these sizes; false if there is none.
template <class Work>
bool with_plan(std::int64_t d, const GradientTiles& tiles, Work work) {
  return with_head_dim(d, [&](auto d) {
    if (tiles == GradientTiles{64, 64, 4}) return work(Plan<d, 4, 2>()), true;
    if constexpr (d == 128) {
      if (tiles == GradientTiles{128, 64, 8}) return work(Plan<d, 8, 2>()), true;
      if (tiles == GradientTiles{32, 64, 2}) return work(Plan<d, 2, 2>()), true;
    } else {
      if (tiles == GradientTiles{128, 32, 4}) return work(Plan<d, 4, 1>()), true;
      if (tiles == GradientTiles{64, 32, 2}) return work(Plan<d, 2, 1>()), true;
      if (tiles == GradientTiles{32, 32, 1}) return work(Plan<d, 1, 1>()), true;
    }
    return false;
  });
}

template <class T, class Gradient>
void start(const BackwardCall<Element, Gradient>& call, float2* rows) {
  prepare_rows(call, rows);
  start_keys<T, false>(call, rows, nullptr);
  start_queries<T>(call, rows);
}

/// The Plan of the variant with atomics: a warp for each 16 columns.
template <int d>
using AtomicPlan = Plan<d, d / 16, d == 128 ? 2 : 1>;

template <class Gradient>
void run_atomic(const BackwardCall<Element, Gradient>& call, float2* rows, float* dQ_sum) {
  const std::int64_t heads = call.shape.B * call.shape.H, fours = dQ_sum_size(call.shape) / 4;
  with_head_dim(call.shape.d, [&](auto d) {
    prepare_rows(call, rows);
    workbook::cuda::launch(clear_dQ_sum, blocks(1, fours, 256), dim3(256), 0, dQ_sum, fours);
    start_keys<AtomicPlan<d>, true>(call, rows, dQ_sum);
    workbook::cuda::launch(write_dQ<d, Gradient>, blocks(1, heads * ((call.shape.Nq + 15) / 16), 4), dim3(128), 0,
                           dQ_sum, call.dQ, heads, call.shape.Nq, call.scale);
  });
}

}  // namespace

template <>
void backward(const BackwardCall<Element>& call, float2* rows, const GradientTiles& tiles) {
  if (!with_plan(call.shape.d, tiles, [&](auto plan) { start<decltype(plan)>(call, rows); }))
    throw std::invalid_argument("Bc, Br, warps = " + std::to_string(tiles.Bc) + ", " + std::to_string(tiles.Br) + ", " +
                                std::to_string(tiles.warps) + " is not built");
}
template <>
void backward_to_float(const BackwardCall<Element, float>& call, float2* rows) {
  with_head_dim(call.shape.d, [&](auto d) { start<Plan<d, 2, d == 128 ? 2 : 1>>(call, rows); });
}
template <>
void atomic_backward(const BackwardCall<Element>& call, float2* rows, float* dQ_sum) {
  run_atomic(call, rows, dQ_sum);
}
template <>
void atomic_backward(const BackwardCall<Element, float>& call, float2* rows, float* dQ_sum) {
  run_atomic(call, rows, dQ_sum);
}

template <>
std::size_t shared_bytes<Element>(int d, const GradientTiles& tiles) {
  std::size_t bytes = 0;
  with_plan(d, tiles, [&](auto plan) {
    bytes = std::max(sizeof(KeyShared<decltype(plan)>), sizeof(QueryShared<decltype(plan)>));
  });
  return bytes;
}

}  // namespace ch06
