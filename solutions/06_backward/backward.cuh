// Chapter 6, the recomputing backward: what is new in its kernels, the kernels, and the launch. backward.cu compiles
// them for fp16.
//
// Source: Dao 2023, section 3.1.2, Algorithm 2.
// Test it: ./workbook test 6
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "backward.hpp"
#include "fragments.hpp"

namespace ch06 {
namespace {

using workbook::cuda::dynamic_shared, workbook::cuda::exp2_ftz, workbook::cuda::note;

/// What a block keeps that owns keys. There is a place for two tiles of queries: one arrives while one is used.
template <class T>
struct KeyShared {
  ElementOf<T> K[T::owned][T::d + pad], V[T::owned][T::d + pad];
  ElementOf<T> Q[2][T::passing][T::d + pad], dO[2][T::passing][T::d + pad];
  ElementOf<T> P[T::owned][T::passing + pad], dS[T::owned][T::passing + pad];  // Pᵀ and dSᵀ: a row is a key
  Row rows[2][T::passing];
  float index[16][16];
  SHARED_LAYOUT(KeyShared, (K, T::d), (V, T::d), (Q, T::d), (dO, T::d), (P, T::passing), (dS, T::passing), rows, index);
};

/// The same for a block that owns queries.
template <class T>
struct QueryShared {
  ElementOf<T> Q[T::owned][T::d + pad], dO[T::owned][T::d + pad];
  ElementOf<T> K[2][T::passing][T::d + pad], V[2][T::passing][T::d + pad];
  ElementOf<T> dS[T::owned][T::passing + pad];
  Row rows[T::owned];
  float index[16][16];
  SHARED_LAYOUT(QueryShared, (Q, T::d), (dO, T::d), (K, T::d), (V, T::d), (dS, T::passing), rows, index);
};

/// S -> P = exp2(S·scale - LSE) and dP -> dS = P∘(dP - D) for one fragment. Element e belongs to the query of row[e];
/// where counts(e) is false, P and dS are 0. scale holds log2(e).
template <class Counts>
__device__ __forceinline__ void form_P_and_dS(Accumulator& S, Accumulator& dP, const Row (&row)[elements], float scale,
                                              Counts counts) {
  // TODO(6.3) Element by element, all in fp32 (about 6 lines).
  // BEGIN 6.3
#pragma unroll
  for (int e = 0; e < elements; ++e) {
    const float P = counts(e) ? exp2_ftz(S.x[e] * scale - row[e].x) : 0;
    S.x[e] = P;
    dP.x[e] = P * (dP.x[e] - row[e].y);
  }
  // END 6.3
}

/// dV += Pᵀ dO and dK += dSᵀ Q for one tile of queries: this warp's columns of its team's 32 keys. Key k of the block
/// counts for query q of the tile if k <= q + reach; only where `masked` is true is there one that does not. `map` says
/// which key (row) and which query (column) each element of a fragment belongs to.
template <class T, int wide>
__device__ __forceinline__ void accumulate_keys(KeyShared<T>& smem, int stage, const Map& map, float scale, bool masked,
                                                int reach, Accumulator (&dK)[2][wide], Accumulator (&dV)[2][wide]) {
  // TODO(6.4) Sᵀ = K Qᵀ and dPᵀ = V dOᵀ for the team's 32 keys and 32 queries, this warp's part of the tile;
  // from them P and dS, each fragment with the Rows of its queries; rounded to smem.P and smem.dS. When the
  // team has done so, both products (about 27 lines).
  // BEGIN 6.4
  const int part = threadIdx.x / 32 % T::team, own = threadIdx.x / 32 / T::team * 32;
  Accumulator P[2][2], dS[2][2];
  multiply_transposed(P, left_rows(smem.K, own), smem.Q[stage], 32 * part);    // Sᵀ, (32, 32)
  multiply_transposed(dS, left_rows(smem.V, own), smem.dO[stage], 32 * part);  // dPᵀ, (32, 32)
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int query = 32 * part + 16 * n;
    Row row[elements];
#pragma unroll
    for (int e = 0; e < elements; ++e) row[e] = smem.rows[stage][query + map.column[e]];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int key = own + 16 * r;
      if (masked) {
        const Map at = learn_map(smem.index);
        form_P_and_dS(P[r][n], dS[r][n], row, scale,
                      [&](int e) { return key + at.row[e] <= query + at.column[e] + reach; });
      } else {
        form_P_and_dS(P[r][n], dS[r][n], row, scale, [](int) { return true; });
      }
      store_rounded(smem.P, key, query, P[r][n]);
      store_rounded(smem.dS, key, query, dS[r][n]);
    }
  }
  meet<T>();  // the team's P and dS are there
  accumulate(dV, smem.P, own, smem.dO[stage], part * T::columns);
  accumulate(dK, smem.dS, own, smem.Q[stage], part * T::columns);
  // END 6.4
}

/// dQ += dS K for one tile of keys: this warp's columns of its team's 32 queries, whose rows are Q and dO. row[r] are
/// the Rows of the queries of a fragment's elements, 16 r further down. Key k of the tile counts for query q of the
/// block if k < keys and k <= q + reach; only where `masked` is true is there one that does not.
template <class T, class Rows, int wide>
__device__ __forceinline__ void accumulate_queries(QueryShared<T>& smem, int stage, const Rows& Q, const Rows& dO,
                                                   const Row (&row)[2][elements], float scale, bool masked, int keys,
                                                   int reach, Accumulator (&dQ)[2][wide]) {
  // TODO(6.5) S = Q Kᵀ and dP = dO Vᵀ for the team's 32 queries and 32 keys, this warp's part of the tile; from
  // them dS, rounded to smem.dS. When the team has done so, the product (about 22 lines).
  // BEGIN 6.5
  const int part = threadIdx.x / 32 % T::team, own = threadIdx.x / 32 / T::team * 32;
  Accumulator P[2][2], dS[2][2];
  multiply_transposed(P, Q, smem.K[stage], 32 * part);    // S, (32, 32)
  multiply_transposed(dS, dO, smem.V[stage], 32 * part);  // dP, (32, 32)
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int query = own + 16 * r, key = 32 * part + 16 * n;
      if (masked) {
        const Map at = learn_map(smem.index);
        form_P_and_dS(P[r][n], dS[r][n], row[r], scale, [&](int e) {
          return key + at.column[e] < keys && key + at.column[e] <= query + at.row[e] + reach;
        });
      } else {
        form_P_and_dS(P[r][n], dS[r][n], row[r], scale, [](int) { return true; });
      }
      store_rounded(smem.dS, query, key, dS[r][n]);
    }
  }
  meet<T>();  // the team's dS is there
  accumulate(dQ, smem.dS, own, smem.K[stage], part * T::columns);
  // END 6.5
}

/// The rows that pass by a block: [begin, end), in tiles from `begin` on. A tile within [all_from, all_until) needs no
/// mask: every pair of it counts.
struct Passing {
  std::int64_t begin, end, all_from, all_until;
};

/// The queries that pass by `count` keys from `first` on, or the keys that pass by `count` queries. Query i sees key j
/// if j <= i + (Nk - Nq), or always where causal is false. Queries that do not exist need no mask, keys do.
template <int tile>
__device__ Passing rows_that_pass(bool owns_keys, std::int64_t first, int count, std::int64_t Nq, std::int64_t Nk,
                                  bool causal) {
  // TODO(6.6) Queries pass from the tile of the first that sees the first key; from the first that sees the
  // last key on, no mask is needed. Keys pass until the last that the last query sees; up to the last that the
  // first query sees, no mask is needed (about 9 lines).
  // BEGIN 6.6
  const std::int64_t offset = Nk - Nq;
  if (owns_keys) {
    const std::int64_t sees_first_key = causal ? max(std::int64_t(0), first - offset) : 0;
    const std::int64_t sees_last_key = causal ? first + count - 1 - offset : 0;
    return {sees_first_key / tile * tile, Nq, sees_last_key, Nq + tile};
  }
  const std::int64_t seen_by_last_query = causal ? max(std::int64_t(0), first + count + offset) : Nk;
  const std::int64_t seen_by_first_query = causal ? first + 1 + offset : Nk;
  return {0, seen_by_last_query, 0, seen_by_first_query};
  // END 6.6
}

/// dK and dV. A block owns a tile of keys; the first tiles, which the most queries see, go first.
template <class T, class Gradient>
__global__ void __launch_bounds__(T::threads, T::blocks)
    key_gradients(const ElementOf<T>* __restrict__ Q, const ElementOf<T>* __restrict__ K,
                  const ElementOf<T>* __restrict__ V, const ElementOf<T>* __restrict__ dO, const Row* __restrict__ rows,
                  Gradient* __restrict__ dK, Gradient* __restrict__ dV, std::int64_t Nq, std::int64_t Nk, float scale,
                  bool causal) {
  auto& smem = dynamic_shared<KeyShared<T>>();
  const auto [head, tile] = place_of_block((Nk + T::owned - 1) / T::owned, causal);
  const std::int64_t first_key = tile * T::owned, K_row = head * Nk + first_key;
  const int keys = min(std::int64_t(T::owned), Nk - first_key);
  const Passing queries = rows_that_pass<T::passing>(true, first_key, keys, Nq, Nk, causal);
  Q += head * Nq * T::d, dO += head * Nq * T::d, rows += head * Nq;
  const auto load = [&](int stage, std::int64_t query) {
    const int count = min(std::int64_t(T::passing), Nq - query);
    load_tile<T::threads>(smem.Q[stage], Q + query * T::d, count);    // (passing, d)
    load_tile<T::threads>(smem.dO[stage], dO + query * T::d, count);  // (passing, d)
    load_rows(smem.rows[stage], rows + query, count);                 // (passing)
  };
  load_tile<T::threads>(smem.K, K + K_row * T::d, keys);  // (owned, d)
  load_tile<T::threads>(smem.V, V + K_row * T::d, keys);  // (owned, d)
  load(0, queries.begin);
  __pipeline_commit();
  write_index<T::threads>(smem.index);
  __syncthreads();  // the index is there
  const Map map = learn_map(smem.index);
  Accumulator dK_own[2][T::columns / 16], dV_own[2][T::columns / 16];  // (32, columns) per warp
  clear(dK_own), clear(dV_own);

  int stage = 0;
  for (std::int64_t query = queries.begin; query < queries.end; query += T::passing, stage ^= 1) {
    __pipeline_wait_prior(0);
    __syncthreads();  // this tile is there, and the last one has been used: the next may take its place
    if (query + T::passing < queries.end) load(stage ^ 1, query + T::passing);
    __pipeline_commit();
    const bool masked = query < queries.all_from || query + T::passing > queries.all_until;
    if (masked) note("masked tile", query / T::passing);
    const int reach = masked ? query + (Nk - Nq) - first_key : 0;
    accumulate_keys(smem, stage, map, scale * log2_e, masked, reach, dK_own, dV_own);
  }
  meet<T>();  // P has been used: it makes room for what is written
  const int part = threadIdx.x / 32 % T::team, own = threadIdx.x / 32 / T::team * 32;
  write_gradient<T::d>(dK + (K_row + own) * T::d, keys - own, part * T::columns, scale, dK_own, smem.P,
                       own + 16 * part);
  write_gradient<T::d>(dV + (K_row + own) * T::d, keys - own, part * T::columns, 1, dV_own, smem.P, own + 16 * part);
}

/// dQ. A block owns a tile of queries; the last tiles, which see the most keys, go first.
template <class T, class Gradient>
__global__ void __launch_bounds__(T::threads, T::blocks)
    query_gradients(const ElementOf<T>* __restrict__ Q, const ElementOf<T>* __restrict__ K,
                    const ElementOf<T>* __restrict__ V, const ElementOf<T>* __restrict__ dO,
                    const Row* __restrict__ rows, Gradient* __restrict__ dQ, std::int64_t Nq, std::int64_t Nk,
                    float scale, bool causal) {
  auto& smem = dynamic_shared<QueryShared<T>>();
  const std::int64_t tiles = (Nq + T::owned - 1) / T::owned;
  const auto [head, tile] = place_of_block(tiles, causal);
  const std::int64_t first_query = (tiles - 1 - tile) * T::owned, Q_row = head * Nq + first_query;
  const int queries = min(std::int64_t(T::owned), Nq - first_query);
  const Passing keys = rows_that_pass<T::passing>(false, first_query, queries, Nq, Nk, causal);
  K += head * Nk * T::d, V += head * Nk * T::d;
  const auto load = [&](int stage, std::int64_t key) {
    const int count = min(std::int64_t(T::passing), Nk - key);
    load_tile<T::threads>(smem.K[stage], K + key * T::d, count);  // (passing, d)
    load_tile<T::threads>(smem.V[stage], V + key * T::d, count);  // (passing, d)
  };
  load_tile<T::threads>(smem.Q, Q + Q_row * T::d, queries);    // (owned, d)
  load_tile<T::threads>(smem.dO, dO + Q_row * T::d, queries);  // (owned, d)
  load_rows(smem.rows, rows + Q_row, queries);                 // (owned)
  if (keys.begin < keys.end) load(0, keys.begin);
  __pipeline_commit();
  write_index<T::threads>(smem.index);
  __pipeline_wait_prior(0);
  __syncthreads();  // the index and the Rows are there
  const Map map = learn_map(smem.index);
  const int part = threadIdx.x / 32 % T::team, own = threadIdx.x / 32 / T::team * 32;
  Row row[2][elements];
#pragma unroll
  for (int e = 0; e < elements; ++e)
    row[0][e] = smem.rows[own + map.row[e]], row[1][e] = smem.rows[own + 16 + map.row[e]];
  const auto Q_own = left_rows<T::team == 1>(smem.Q, own), dO_own = left_rows<T::team == 1>(smem.dO, own);
  Accumulator dQ_own[2][T::columns / 16];  // (32, columns) per warp
  clear(dQ_own);

  int stage = 0;
  for (std::int64_t key = keys.begin; key < keys.end; key += T::passing, stage ^= 1) {
    __pipeline_wait_prior(0);
    __syncthreads();  // this tile is there, and the last one has been used: the next may take its place
    if (key + T::passing < keys.end) load(stage ^ 1, key + T::passing);
    __pipeline_commit();
    const bool masked = key < keys.all_from || key + T::passing > keys.all_until;
    if (masked) note("masked tile", key / T::passing);
    const int count = min(std::int64_t(T::passing), Nk - key);
    const int reach = masked && causal ? first_query + (Nk - Nq) - key : T::passing;
    accumulate_queries(smem, stage, Q_own, dO_own, row, scale * log2_e, masked, count, reach, dQ_own);
  }
  meet<T>();  // dS has been used: it makes room for what is written
  write_gradient<T::d>(dQ + (Q_row + own) * T::d, queries - own, part * T::columns, scale, dQ_own, smem.dS,
                       own + 16 * part);
}

template <class T, class Gradient>
void start(const BackwardCall<ElementOf<T>, Gradient>& call, float2* rows) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  prepare_rows(call, rows);
  workbook::cuda::launch(key_gradients<T, Gradient>, blocks(B * H, Nk, T::owned), dim3(T::threads),
                         sizeof(KeyShared<T>), call.Q, call.K, call.V, call.dO, rows, call.dK, call.dV, Nq, Nk,
                         call.scale, call.causal);
  workbook::cuda::launch(query_gradients<T, Gradient>, blocks(B * H, Nq, T::owned), dim3(T::threads),
                         sizeof(QueryShared<T>), call.Q, call.K, call.V, call.dO, rows, call.dQ, Nq, Nk, call.scale,
                         call.causal);
}

/// Calls work with the Plan of these sizes; false if there is none.
template <class Element, class Work>
bool with_plan(std::int64_t d, const GradientTiles& tiles, Work work) {
  return with_head_dim(d, [&](auto d) {
    if (tiles == GradientTiles{128, 64, 8}) return work(Plan<Element, d, 8, 2>()), true;
    if (tiles == GradientTiles{64, 64, 4}) return work(Plan<Element, d, 4, 2>()), true;
    if constexpr (d <= 64) {  // with d = 128 the gradients of 32 keys would fill the registers of a warp
      if (tiles == GradientTiles{128, 32, 4}) return work(Plan<Element, d, 4, 1>()), true;
    }
    if constexpr (d == 32) {  // a block as small as can be, for very many heads on the simulator
      if (tiles == GradientTiles{32, 32, 1}) return work(Plan<Element, d, 1, 1>()), true;
    }
    return false;
  });
}

}  // namespace

template <class Element, class Gradient>
void backward(const BackwardCall<Element, Gradient>& call, float2* rows, const GradientTiles& tiles) {
  if (!with_plan<Element>(call.shape.d, tiles, [&](auto plan) { start<decltype(plan)>(call, rows); }))
    throw std::invalid_argument("owned, passing, warps = " + std::to_string(tiles.owned) + ", " +
                                std::to_string(tiles.passing) + ", " + std::to_string(tiles.warps) + " is not built");
}

template <class Element>
std::size_t shared_bytes(int d, const GradientTiles& tiles) {
  std::size_t bytes = 0;
  with_plan<Element>(d, tiles, [&](auto plan) {
    bytes = std::max(sizeof(KeyShared<decltype(plan)>), sizeof(QueryShared<decltype(plan)>));
  });
  return bytes;
}

}  // namespace ch06
