// Chapter 6, backward with recomputation: simple_backward.cu, optimized and for every d.
//
// What changes, step by step:
// - The streamed tile has two buffers, so that the next tile is copied while the current one is used.
// - Tiles in which all (query, key) pairs are masked are skipped. Tiles in which none is masked skip the mask.
// - Several warps share a thread block, and with it the streamed tiles.
// - For d = 128 the gradients of 32 keys would fill the registers of a warp. So two warps form a team and halve them.
// - With `fused` the dK and dV kernel also adds to dQ by atomics (dQ_sum.hpp).
//
// Source: Dao 2023, section 3.1.2, Algorithm 2; section 3.2 for the division among thread blocks and warps.
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

/// dK and dV, one thread block per K/V tile. With the causal mask the first tiles have the most work, so they start
/// first. If `fused`, the kernel also adds this K/V tile's contribution to dQ.
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
  const auto [head, tile] = tile_of_block((Nk + T::resident - 1) / T::resident, causal);
  const std::int64_t first_key = tile * T::resident, K_row = head * Nk + first_key;
  const int keys = min(std::int64_t(T::resident), Nk - first_key);
  Streamed queries = streamed_rows<T::streamed>(true, first_key, keys, Nq, Nk, causal);
  if (fused && keys < T::resident) queries.unmasked_end = 0;  // dQ also sums over keys past the end: mask them
  Q += head * Nq * T::d, dO += head * Nq * T::d, rows += head * Nq;

  load_tile<T::threads>(smem.K, K + K_row * T::d, keys);  // (resident, d)
  load_tile<T::threads>(smem.V, V + K_row * T::d, keys);  // (resident, d)
  load_q_tile(smem, 0, Q, dO, rows, queries.begin, Nq);
  __pipeline_commit();
  write_index<T::threads>(smem.index);
  __syncthreads();  // smem.index is visible
  [[maybe_unused]] const Map map = make_map(smem.index);
  const int part = threadIdx.x / lanes % T::team, warp_key = threadIdx.x / lanes / T::team * warp_rows,
            column = part * T::columns;
  Accumulator dK_warp[2][T::columns / 16], dV_warp[2][T::columns / 16];  // (32, columns) per warp
  clear(dK_warp), clear(dV_warp);

  int buffer = 0;
  for (std::int64_t query = queries.begin; query < queries.end; query += T::streamed, buffer ^= 1) {
    // TODO(6.7) Wait until this Q tile is visible to all warps and all have finished with the previous one. Start
    // copying the next Q tile, if any, into the other buffer. Decide whether this one needs a mask; if so, note it and
    // compute its diagonal. Compute this warp's Sᵀ and dPᵀ, (32, 32), and from them Pᵀ and dSᵀ. After the team's
    // barrier, add to this warp's columns of dV and dK (about 16 lines).
    // BEGIN 6.7
    __pipeline_wait_prior(0);
    __syncthreads();  // this Q tile is visible to all warps, and the previous one's buffer is free
    if (query + T::streamed < queries.end) load_q_tile(smem, buffer ^ 1, Q, dO, rows, query + T::streamed, Nq);
    __pipeline_commit();
    const bool masked = query < queries.unmasked_begin || query + T::streamed > queries.unmasked_end;
    if (masked) note("masked tile", query / T::streamed);
    const int diagonal = masked && causal ? query + (Nk - Nq) - first_key : T::resident;
    Accumulator P[2][2], dS[2][2];
    multiply_transposed(P, left_rows(smem.K, warp_key), smem.Q[buffer], warp_rows * part);    // Sᵀ, (32, 32)
    multiply_transposed(dS, left_rows(smem.V, warp_key), smem.dO[buffer], warp_rows * part);  // dPᵀ, (32, 32)
    P_and_dS_of_keys(smem, P, dS, warp_key, warp_rows * part, smem.rows[buffer], map, scale * log2_e,
                     {masked, keys, diagonal});
    team_barrier<T>();  // the team's P and dS are visible
    accumulate(dV_warp, smem.P, warp_key, smem.dO[buffer], column);
    accumulate(dK_warp, smem.dS, warp_key, smem.Q[buffer], column);
    // END 6.7
    if constexpr (fused) {
      __syncthreads();  // dS of all keys is visible
      add_dQ<T::d>(smem.dS, smem.K, dQ_sum, head, query, Nq);
    }
  }
  team_barrier<T>();  // the team has finished with P: its memory is now scratch for the gradients
  write_gradient<T::d>(dK + (K_row + warp_key) * T::d, keys - warp_key, column, scale, dK_warp, smem.P,
                       warp_key + 16 * part);
  write_gradient<T::d>(dV + (K_row + warp_key) * T::d, keys - warp_key, column, 1, dV_warp, smem.P,
                       warp_key + 16 * part);
}

/// dQ, one thread block per Q tile. With the causal mask the last tiles have the most work, so they start first.
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
  const auto [head, tile] = tile_of_block(tiles, causal);
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
  __syncthreads();  // smem.index and the QueryRows are visible
  [[maybe_unused]] const Map map = make_map(smem.index);
  const int part = threadIdx.x / lanes % T::team, warp_query = threadIdx.x / lanes / T::team * warp_rows,
            column = part * T::columns;
  QueryRow row[2][elements];
#pragma unroll
  for (int e = 0; e < elements; ++e)
    row[0][e] = smem.rows[warp_query + map.row[e]], row[1][e] = smem.rows[warp_query + 16 + map.row[e]];
  [[maybe_unused]] const auto Q_warp = left_rows<T::team == 1>(smem.Q, warp_query),
                              dO_warp = left_rows<T::team == 1>(smem.dO, warp_query);
  Accumulator dQ_warp[2][T::columns / 16];  // (32, columns) per warp
  clear(dQ_warp);

  int buffer = 0;
  for (std::int64_t key = keys.begin; key < keys.end; key += T::streamed, buffer ^= 1) {
    // TODO(6.8) As 6.7 with the roles exchanged: K/V tiles are streamed, and the last one may be short. The left
    // operands are Q_warp and dO_warp. Add only to dQ (about 16 lines).
    // BEGIN 6.8
    __pipeline_wait_prior(0);
    __syncthreads();  // this K/V tile is visible to all warps, and the previous one's buffer is free
    if (key + T::streamed < keys.end) load_kv_tile(smem, buffer ^ 1, K, V, key + T::streamed, Nk);
    __pipeline_commit();
    const bool masked = key < keys.unmasked_begin || key + T::streamed > keys.unmasked_end;
    if (masked) note("masked tile", key / T::streamed);
    const int count = min(std::int64_t(T::streamed), Nk - key);
    const int diagonal = masked && causal ? first_query + (Nk - Nq) - key : T::streamed;
    Accumulator S[2][2], dS[2][2];
    multiply_transposed(S, Q_warp, smem.K[buffer], warp_rows * part);    // S, (32, 32)
    multiply_transposed(dS, dO_warp, smem.V[buffer], warp_rows * part);  // dP, (32, 32)
    dS_of_queries(smem, S, dS, warp_query, warp_rows * part, row, scale * log2_e, {masked, count, diagonal});
    team_barrier<T>();  // the team's dS is visible
    accumulate(dQ_warp, smem.dS, warp_query, smem.K[buffer], column);
    // END 6.8
  }
  team_barrier<T>();  // the team has finished with dS: its memory is now scratch for dQ
  write_gradient<T::d>(dQ + (Q_row + warp_query) * T::d, queries - warp_query, column, scale, dQ_warp, smem.dS,
                       warp_query + 16 * part);
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

/// Calls work with the Plan of these sizes. Returns false if there is none.
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

/// The Plan of the atomic variant: one warp per 16 columns, because add_dQ divides the columns among the warps.
template <int d>
using AtomicPlan = Plan<d, d / 16, d == 128 ? 2 : 1>;

template <class Gradient>
void run_atomic(const BackwardCall<Element, Gradient>& call, float2* rows, float* dQ_sum) {
  const std::int64_t heads = call.shape.B * call.shape.H, vectors = dQ_sum_size(call.shape) / 4;
  with_head_dim(call.shape.d, [&](auto d) {
    prepare_rows(call, rows);
    workbook::cuda::launch(clear_dQ_sum, blocks(1, vectors, 256), dim3(256), 0, dQ_sum, vectors);
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
