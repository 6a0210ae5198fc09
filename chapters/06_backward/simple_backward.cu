// Chapter 6, given: the simplest kernels of the backward pass, for d = 64. A thread block is one warp. For dK and dV it
// keeps a K/V tile (32 keys with their rows of K and V) and loops over all Q tiles (32 queries with their rows of Q and
// dO). For dQ it keeps a Q tile and loops over all K/V tiles.
//
// What it costs: each warp loads all tiles for itself and waits for every copy. Each tile of S is computed and the mask
// is applied to it, even if the tile is empty or full. backward.cu removes these costs one by one.
//
// Source: Dao 2023, section 3.1.2, Algorithm 2. There one kernel computes all three gradients and adds to dQ by
// atomics. Test it: ./workbook test 6.4, ./workbook trace 6 --set simple=1
#include "simple_backward.hpp"

#include <cstdint>

#include "P_and_dS.hpp"
#include "fragments.hpp"

namespace ch06 {
namespace {

using workbook::cuda::dynamic_shared, workbook::cuda::note;

constexpr int d = 64, Br = warp_rows, Bc = warp_rows;

struct Shared {
  Element Q[Br][d + pad], dO[Br][d + pad];  // a Q tile i
  Element K[Bc][d + pad], V[Bc][d + pad];   // a K/V tile j
  Element P[warp_rows][warp_rows + pad],
      dS[warp_rows][warp_rows + pad];  // (Bc, Br) in key_gradients, (Br, Bc) in query_gradients
  QueryRow rows[Br];                   // LSE_i and D_i
  float index[16][16];                 // the input of make_map
  SHARED_LAYOUT(Shared, (Q, d), (dO, d), (K, d), (V, d), (P, warp_rows), (dS, warp_rows), rows, index);
};

/// dK and dV, one thread block per K/V tile j of each head. P and dS are transposed here: a row is a key.
__global__ void __launch_bounds__(lanes) key_gradients(const Element* __restrict__ Q,      // (heads, Nq, d)
                                                       const Element* __restrict__ K,      // (heads, Nk, d)
                                                       const Element* __restrict__ V,      // (heads, Nk, d)
                                                       const Element* __restrict__ dO,     // (heads, Nq, d)
                                                       const QueryRow* __restrict__ rows,  // (heads, Nq)
                                                       Element* __restrict__ dK,           // (heads, Nk, d)
                                                       Element* __restrict__ dV,           // (heads, Nk, d)
                                                       std::int64_t Nq, std::int64_t Nk, float scale, bool causal) {
  auto& smem = dynamic_shared<Shared>();
  const std::int64_t kv_tiles = (Nk + Bc - 1) / Bc, head = blockIdx.x / kv_tiles;
  const std::int64_t first_key = blockIdx.x % kv_tiles * Bc, K_row = head * Nk + first_key;
  const int keys = min(std::int64_t(Bc), Nk - first_key);
  Q += head * Nq * d, dO += head * Nq * d, rows += head * Nq;

  load_tile<lanes>(smem.K, K + K_row * d, keys);  // K_j, (Bc, d)
  load_tile<lanes>(smem.V, V + K_row * d, keys);  // V_j, (Bc, d)
  write_index<lanes>(smem.index);
  __syncwarp();  // smem.index is visible
  const Map map = make_map(smem.index);
  Accumulator dK_j[2][d / 16], dV_j[2][d / 16];  // (Bc, d)
  clear(dK_j), clear(dV_j);

  for (std::int64_t first_query = 0; first_query < Nq; first_query += Br) {
    const int queries = min(std::int64_t(Br), Nq - first_query);
    load_tile<lanes>(smem.Q, Q + first_query * d, queries);    // Q_i, (Br, d)
    load_tile<lanes>(smem.dO, dO + first_query * d, queries);  // dO_i, (Br, d)
    load_rows(smem.rows, rows + first_query, queries);         // LSE_i and D_i, (Br)
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncwarp();  // the other lanes' copies are visible
    note("masked tile", first_query / Br);
    const Mask mask{true, keys, causal ? int(first_query + (Nk - Nq) - first_key) : Bc};
    Accumulator P[2][2], dS[2][2];
    multiply_transposed(P, left_rows(smem.K, 0), smem.Q, 0);    // S_ijᵀ = K_j Q_iᵀ, (Bc, Br)
    multiply_transposed(dS, left_rows(smem.V, 0), smem.dO, 0);  // dP_ijᵀ = V_j dO_iᵀ, (Bc, Br)
    P_and_dS_of_keys(smem, P, dS, 0, 0, smem.rows, map, scale * log2_e, mask);
    __syncwarp();                             // Pᵀ and dSᵀ are visible to all lanes
    accumulate(dV_j, smem.P, 0, smem.dO, 0);  // dV_j += P_ijᵀ dO_i
    accumulate(dK_j, smem.dS, 0, smem.Q, 0);  // dK_j += dS_ijᵀ Q_i
    __syncwarp();                             // all lanes have finished with this Q tile: the next may overwrite it
  }
  write_gradient<d>(dK + K_row * d, keys, 0, scale, dK_j, smem.P, 0);
  write_gradient<d>(dV + K_row * d, keys, 0, 1, dV_j, smem.P, 0);
}

/// dQ, one thread block per Q tile i of each head.
__global__ void __launch_bounds__(lanes) query_gradients(const Element* __restrict__ Q,      // (heads, Nq, d)
                                                         const Element* __restrict__ K,      // (heads, Nk, d)
                                                         const Element* __restrict__ V,      // (heads, Nk, d)
                                                         const Element* __restrict__ dO,     // (heads, Nq, d)
                                                         const QueryRow* __restrict__ rows,  // (heads, Nq)
                                                         Element* __restrict__ dQ,           // (heads, Nq, d)
                                                         std::int64_t Nq, std::int64_t Nk, float scale, bool causal) {
  auto& smem = dynamic_shared<Shared>();
  const std::int64_t q_tiles = (Nq + Br - 1) / Br, head = blockIdx.x / q_tiles;
  const std::int64_t first_query = blockIdx.x % q_tiles * Br, Q_row = head * Nq + first_query;
  const int queries = min(std::int64_t(Br), Nq - first_query);
  K += head * Nk * d, V += head * Nk * d;

  load_tile<lanes>(smem.Q, Q + Q_row * d, queries);    // Q_i, (Br, d)
  load_tile<lanes>(smem.dO, dO + Q_row * d, queries);  // dO_i, (Br, d)
  load_rows(smem.rows, rows + Q_row, queries);         // LSE_i and D_i, (Br)
  __pipeline_commit();
  write_index<lanes>(smem.index);
  __pipeline_wait_prior(0);
  __syncwarp();  // smem.index and the QueryRows are visible
  const Map map = make_map(smem.index);
  QueryRow row[2][elements];
#pragma unroll
  for (int e = 0; e < elements; ++e) row[0][e] = smem.rows[map.row[e]], row[1][e] = smem.rows[16 + map.row[e]];
  Accumulator dQ_i[2][d / 16];  // (Br, d)
  clear(dQ_i);

  for (std::int64_t first_key = 0; first_key < Nk; first_key += Bc) {
    const int keys = min(std::int64_t(Bc), Nk - first_key);
    load_tile<lanes>(smem.K, K + first_key * d, keys);  // K_j, (Bc, d)
    load_tile<lanes>(smem.V, V + first_key * d, keys);  // V_j, (Bc, d)
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncwarp();  // the other lanes' copies are visible
    note("masked tile", first_key / Bc);
    const Mask mask{true, keys, causal ? int(first_query + (Nk - Nq) - first_key) : Bc};
    Accumulator S[2][2], dS[2][2];
    multiply_transposed(S, left_rows(smem.Q, 0), smem.K, 0);    // S_ij = Q_i K_jᵀ, (Br, Bc)
    multiply_transposed(dS, left_rows(smem.dO, 0), smem.V, 0);  // dP_ij = dO_i V_jᵀ, (Br, Bc)
    dS_of_queries(smem, S, dS, 0, 0, row, scale * log2_e, mask);
    __syncwarp();                             // dS is visible to all lanes
    accumulate(dQ_i, smem.dS, 0, smem.K, 0);  // dQ_i += dS_ij K_j
    __syncwarp();                             // all lanes have finished with this K/V tile: the next may overwrite it
  }
  write_gradient<d>(dQ + Q_row * d, queries, 0, scale, dQ_i, smem.dS, 0);
}

}  // namespace

void simple_backward(const BackwardCall<half>& call, float2* rows) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  prepare_rows(call, rows);
  workbook::cuda::launch(key_gradients, blocks(B * H, Nk, Bc), dim3(lanes), sizeof(Shared), call.Q, call.K, call.V,
                         call.dO, rows, call.dK, call.dV, Nq, Nk, call.scale, call.causal());
  workbook::cuda::launch(query_gradients, blocks(B * H, Nq, Br), dim3(lanes), sizeof(Shared), call.Q, call.K, call.V,
                         call.dO, rows, call.dQ, Nq, Nk, call.scale, call.causal());
}

std::size_t simple_shared_bytes(int head_dim, const GradientTiles& tiles) {
  return head_dim == d && tiles == simple_built[0] ? sizeof(Shared) : 0;
}

}  // namespace ch06
