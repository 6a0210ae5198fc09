// Chapter 6, given as a contrast: dQ accumulated by atomics. Down to add_dQ it is backward.cu's half that owns keys.
//
// Source: Dao 2023, Algorithm 2.
// Test it: ./workbook test 6
#include "atomic_backward.hpp"

#include <cstdint>

#include "fragments.hpp"

namespace ch06 {
namespace {

using workbook::cuda::dynamic_shared, workbook::cuda::exp2_ftz, workbook::cuda::note;

/// What a block keeps that owns keys. There is a place for two tiles of queries: one arrives while one is used.
template <class T>
struct KeyShared {
  half K[T::owned][T::d + pad], V[T::owned][T::d + pad];
  half Q[2][T::passing][T::d + pad], dO[2][T::passing][T::d + pad];
  half P[T::owned][T::passing + pad], dS[T::owned][T::passing + pad];  // Pᵀ and dSᵀ: a row is a key
  Row rows[2][T::passing];
  float index[16][16];
  SHARED_LAYOUT(KeyShared, (K, T::d), (V, T::d), (Q, T::d), (dO, T::d), (P, T::passing), (dS, T::passing), rows, index);
};

/// S -> P = exp2(S·scale - LSE) and dP -> dS = P∘(dP - D) for one fragment. Element e belongs to the query of row[e];
/// where counts(e) is false, P and dS are 0. scale holds log2(e).
template <class Counts>
__device__ __forceinline__ void form_P_and_dS(Accumulator& S, Accumulator& dP, const Row (&row)[elements], float scale,
                                              Counts counts) {
#pragma unroll
  for (int e = 0; e < elements; ++e) {
    const float P = counts(e) ? exp2_ftz(S.x[e] * scale - row[e].x) : 0;
    S.x[e] = P;
    dP.x[e] = P * (dP.x[e] - row[e].y);
  }
}

/// dV += Pᵀ dO and dK += dSᵀ Q for one tile of queries: this warp's columns of its team's 32 keys. Key k of the block
/// counts for query q of the tile if k < keys and k <= q + reach; only where `masked` is true is there one that does
/// not. Here a key that does not exist must not count: its dS, possibly infinite, is multiplied by a row of zeros in K.
template <class T, int wide>
__device__ __forceinline__ void accumulate_keys(KeyShared<T>& smem, int stage, const Map& map, float scale, bool masked,
                                                int keys, int reach, Accumulator (&dK)[2][wide],
                                                Accumulator (&dV)[2][wide]) {
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
                      [&](int e) { return key + at.row[e] < keys && key + at.row[e] <= query + at.column[e] + reach; });
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
}

/// What is accumulated in dQ_sum is never read but by a lane that holds the same elements of the same fragment: so a
/// fragment of 16 x 16 lies there element by element, 32 lanes side by side, and nobody has to know which is which.
/// `row_block` counts 16 rows of Q over all heads, `column_block` 16 columns.
template <int d>
__device__ __forceinline__ float* place(float* dQ_sum, std::int64_t row_block, int column_block) {
  return dQ_sum + (row_block * (d / 16) + column_block) * 256 + threadIdx.x % 32;
}

/// dQ += dS K of the block's keys for one tile of queries: (passing, owned), (owned, d) -> (passing, d). Each warp has
/// 16 columns.
template <class T>
__device__ __forceinline__ void add_dQ(const KeyShared<T>& smem, float* dQ_sum, std::int64_t first_row_block,
                                       int row_blocks) {
  static_assert(16 * T::warps == T::d);
  constexpr int tall = T::passing / 16;
  const int warp = threadIdx.x / 32;
  Accumulator dQ[tall][1];
  clear(dQ);
#pragma unroll
  for (int key = 0; key < T::owned; key += 16) {
    Right<half> K;
    wmma::load_matrix_sync(K, &smem.K[key][16 * warp], T::d + pad);
#pragma unroll
    for (int r = 0; r < tall; ++r) {
      LeftTransposed<half> dS;
      wmma::load_matrix_sync(dS, &smem.dS[key][16 * r], T::passing + pad);
      wmma::mma_sync(dQ[r][0], dS, K, dQ[r][0]);
    }
  }
#pragma unroll
  for (int r = 0; r < tall; ++r) {
    if (r < row_blocks) {
#pragma unroll
      for (int e = 0; e < elements; ++e)
        atomicAdd(place<T::d>(dQ_sum, first_row_block + r, warp) + 32 * e, dQ[r][0].x[e]);
    }
  }
}

__global__ void clear_dQ_sum(float* dQ_sum, std::int64_t fours) {
  const std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < fours) reinterpret_cast<float4*>(dQ_sum)[i] = {0, 0, 0, 0};
}

/// dQ = scale·dQ_sum, a warp for 16 rows.
template <int d, class Gradient>
__global__ void write_dQ(float* dQ_sum, Gradient* __restrict__ dQ, std::int64_t heads, std::int64_t Nq, float scale) {
  __shared__ __align__(32) half scratch[4][16][32 + pad];
  const std::int64_t row_blocks = (Nq + 15) / 16;
  const int warp = threadIdx.x / 32;
  const std::int64_t block = std::int64_t(blockIdx.x) * 4 + warp, first = block % row_blocks * 16;
  if (block >= heads * row_blocks) return;
  Accumulator sum[1][d / 16];
#pragma unroll
  for (int n = 0; n < d / 16; ++n) {
#pragma unroll
    for (int e = 0; e < elements; ++e) sum[0][n].x[e] = place<d>(dQ_sum, block, n)[32 * e];
  }
  write_gradient<d>(dQ + (block / row_blocks * Nq + first) * d, min(std::int64_t(16), Nq - first), 0, scale, sum,
                    scratch[warp], 0);
}

/// dK, dV, and this block's part of dQ. A block owns a tile of keys; the first tiles, which the most queries see, go
/// first.
template <class T, class Gradient>
__global__ void __launch_bounds__(T::threads, T::blocks)
    all_gradients(const half* __restrict__ Q, const half* __restrict__ K, const half* __restrict__ V,
                  const half* __restrict__ dO, const Row* __restrict__ rows, Gradient* __restrict__ dK,
                  Gradient* __restrict__ dV, float* dQ_sum, std::int64_t Nq, std::int64_t Nk, float scale,
                  bool causal) {
  auto& smem = dynamic_shared<KeyShared<T>>();
  const auto [head, tile] = place_of_block((Nk + T::owned - 1) / T::owned, causal);
  const std::int64_t first_key = tile * T::owned, K_row = head * Nk + first_key;
  const int keys = min(std::int64_t(T::owned), Nk - first_key);
  // Queries pass from the first that sees the first key; from the first that sees the last key on, none is masked.
  const std::int64_t sees_first_key = causal ? max(std::int64_t(0), first_key - (Nk - Nq)) : 0;
  const std::int64_t sees_last_key = causal ? first_key + keys - 1 - (Nk - Nq) : 0;
  const std::int64_t first_query = sees_first_key / T::passing * T::passing;
  Q += head * Nq * T::d, dO += head * Nq * T::d, rows += head * Nq;
  const auto load = [&](int stage, std::int64_t query) {
    const int count = min(std::int64_t(T::passing), Nq - query);
    load_tile<T::threads>(smem.Q[stage], Q + query * T::d, count);    // (passing, d)
    load_tile<T::threads>(smem.dO[stage], dO + query * T::d, count);  // (passing, d)
    load_rows(smem.rows[stage], rows + query, count);                 // (passing)
  };
  load_tile<T::threads>(smem.K, K + K_row * T::d, keys);  // (owned, d)
  load_tile<T::threads>(smem.V, V + K_row * T::d, keys);  // (owned, d)
  load(0, first_query);
  __pipeline_commit();
  write_index<T::threads>(smem.index);
  __syncthreads();  // the index is there
  const Map map = learn_map(smem.index);
  Accumulator dK_own[2][T::columns / 16], dV_own[2][T::columns / 16];  // (32, columns) per warp
  clear(dK_own), clear(dV_own);

  int stage = 0;
  for (std::int64_t query = first_query; query < Nq; query += T::passing, stage ^= 1) {
    __pipeline_wait_prior(0);
    __syncthreads();  // this tile is there, and the last one has been used: the next may take its place
    if (query + T::passing < Nq) load(stage ^ 1, query + T::passing);
    __pipeline_commit();
    const bool masked = query < sees_last_key || keys < T::owned;
    if (masked) note("masked tile", query / T::passing);
    const int reach = masked && causal ? query + (Nk - Nq) - first_key : T::owned;
    accumulate_keys(smem, stage, map, scale * log2_e, masked, keys, reach, dK_own, dV_own);
    __syncthreads();  // dS of all keys is there
    const int row_blocks = (min(std::int64_t(T::passing), Nq - query) + 15) / 16;
    add_dQ(smem, dQ_sum, head * ((Nq + 15) / 16) + query / 16, row_blocks);
  }
  meet<T>();  // P has been used: it makes room for what is written
  const int part = threadIdx.x / 32 % T::team, own = threadIdx.x / 32 / T::team * 32;
  write_gradient<T::d>(dK + (K_row + own) * T::d, keys - own, part * T::columns, scale, dK_own, smem.P,
                       own + 16 * part);
  write_gradient<T::d>(dV + (K_row + own) * T::d, keys - own, part * T::columns, 1, dV_own, smem.P, own + 16 * part);
}

}  // namespace

std::int64_t dQ_sum_size(const workbook::Shape& shape) {
  return shape.B * shape.H * ((shape.Nq + 15) / 16 * 16) * shape.d;
}

template <class Gradient>
void atomic_backward(const DeviceCall<half, Gradient>& call, float* dQ_sum) {
  const std::int64_t heads = call.shape.B * call.shape.H, fours = dQ_sum_size(call.shape) / 4;
  with_head_dim(call.shape.d, [&](auto d) {
    using T = Plan<half, d, d / 16, d == 128 ? 2 : 1>;
    prepare_rows(call);
    workbook::cuda::launch(clear_dQ_sum, blocks(1, fours, 256), dim3(256), 0, dQ_sum, fours);
    workbook::cuda::launch(all_gradients<T, Gradient>, blocks(heads, call.shape.Nk, T::owned), dim3(T::threads),
                           sizeof(KeyShared<T>), call.Q, call.K, call.V, call.dO, call.rows, call.dK, call.dV, dQ_sum,
                           call.shape.Nq, call.shape.Nk, call.scale, call.causal);
    workbook::cuda::launch(write_dQ<d, Gradient>, blocks(1, heads * ((call.shape.Nq + 15) / 16), 4), dim3(128), 0,
                           dQ_sum, call.dQ, heads, call.shape.Nq, call.scale);
  });
}
template void atomic_backward(const DeviceCall<half>&, float*);
template void atomic_backward(const DeviceCall<half, float>&, float*);

}  // namespace ch06
