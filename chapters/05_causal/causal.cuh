// Chapter 5, causal: what the mask adds to chapter 4, the kernel, and the launch. The phases that the mask leaves as
// they are stand in phases.hpp. A template is compiled where it is used, for the types it is used with: causal.cu does
// so for fp16.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1 ("Causal masking").
// Test it: ./workbook test 5
#pragma once

#include "causal.hpp"
#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch05 {
namespace {

// How many heads share the GPU at a time: enough blocks of every length to fill it, few enough for L2.
constexpr int heads_together = 8;

/// The sizes of a head, and whether query i sees only the keys j <= i + (Nk - Nq).
struct Sizes {
  std::int64_t Nq, Nk;
  bool causal;
};

/// How many tiles of Bc keys, from the first on, the queries first_query to first_query + Br - 1 see.
template <int Br, int Bc>
__device__ int key_tiles(std::int64_t first_query, const Sizes& sizes) {
  // TODO(5.1) The last of these queries sees most (about 3 lines).
  // BEGIN 5.1
  WORKBOOK_TODO(5.1);
  // END 5.1
}

/// If some row of the warp does not see all keys of this step: scales the scores, makes those of keys that the row does
/// not see -inf, and returns 1. Otherwise leaves the scores alone and returns scale. Either way they have still to be
/// multiplied by what is returned. query is the row's number in its head, first_key that of the step's first key, tile
/// that of the K/V tile.
template <int width>
__device__ __forceinline__ float mask_boundary(float (&S)[width], std::int64_t query, std::int64_t first_key, int tile,
                                               const Sizes& sizes, float scale) {
  // TODO(5.2) How many keys of this step does this row see? If all, in every lane, return scale. Otherwise say so by
  // workbook::cuda::note("masked tile", tile), scale and mask, and return 1 (about 6 lines).
  // BEGIN 5.2
  WORKBOOK_TODO(5.2);
  // END 5.2
}

/// S -> P = exp2(S·scale - m), with the m and l that the row has after this step; returns the factor that brings what
/// has been accumulated to the new m.
template <int width>
__device__ __forceinline__ float update_row(RowState& row, float (&S)[width], float scale) {
  // TODO(5.3) As in 4.3, for a row that may see no key in this step, or none at all. Then its scores are -inf, and m
  // may be: P is to be 0, m and l stay as they are, and nothing is NaN (about 10 lines).
  // BEGIN 5.3
  WORKBOOK_TODO(5.3);
  // END 5.3
}

/// S -> P for this lane's row and one step's keys: P (32, step), 0 for keys that the row does not see. Returns what O
/// is to be multiplied by. In units of log2: scale holds log2(e).
template <class Element, int d, int Br, int Bc, int warps>
__device__ __forceinline__ float online_softmax(Shared<Element, d, Br, Bc, warps>& smem, RowState& row,
                                                std::int64_t query, std::int64_t first_key, int tile,
                                                const Sizes& sizes, float scale) {
  constexpr int width = step<d, Bc>;
  const int lane = threadIdx.x % 32;
  auto& own = smem.own[threadIdx.x / 32];
  float S[width];
  for (int j = 0; j < width; ++j) S[j] = own.S[j][lane];
  scale = mask_boundary(S, query, first_key, tile, sizes, scale);
  const float rescale = update_row(row, S, scale);
  __syncwarp();  // all lanes have read S: P may overwrite it
  for (int j = 0; j < width; j += 8) reinterpret_cast<uint4*>(own.P[lane])[j / 8] = rounded<Element>(&S[j]);
  __syncwarp();  // P is there for all lanes
  return rescale;
}

/// What block number `block` does: a tile of queries of a head.
struct Work {
  int head, query_tile;
};
__device__ Work work_of(int block, int heads, int query_tiles) {
  // TODO(5.4) Blocks start in the order of their numbers. Long ones first, and heads_together heads at a time, whose
  // K and V then stay in L2 (about 3 lines).
  // BEGIN 5.4
  WORKBOOK_TODO(5.4);
  // END 5.4
}

/// One block per tile of queries and head. Warp w owns rows 32·w to 32·w + 31 and never talks to another warp.
template <class Element, int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(32 * warps, blocks<d, warps>)
    attention(const Element* __restrict__ Q, const Element* __restrict__ K, const Element* __restrict__ V,
              Element* __restrict__ O, float* __restrict__ lse, Sizes sizes, int heads, int query_tiles, float scale) {
  auto& smem = dynamic_shared<Shared<Element, d, Br, Bc, warps>>();
  constexpr int threads = 32 * warps;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const Work work = work_of(blockIdx.x, heads, query_tiles);
  const std::int64_t head = work.head, first_query = std::int64_t(work.query_tile) * Br + 32 * warp;  // of this warp
  const std::int64_t first_row = head * sizes.Nq + first_query;
  const int rows = min(std::int64_t(32), sizes.Nq - first_query);  // none if negative
  K += head * sizes.Nk * d, V += head * sizes.Nk * d;
  const int tiles = key_tiles<Br, Bc>(std::int64_t(work.query_tile) * Br, sizes);
  const auto load = [&](Element(&tile)[copies<d>][Bc][d + pad_half], const Element* source, int j) {
    load_tile<threads>(tile[j % copies<d>], source, min(std::int64_t(Bc), sizes.Nk - std::int64_t(j) * Bc), thread);
  };

  load_tile<32>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  if (tiles > 0) load(smem.K, K, 0);                           // (Bc, d)
  if (tiles > 0 && copies<d> == 2) load(smem.V, V, 0);         // (Bc, d)
  __pipeline_commit();
  for (int i = thread; i < 256; i += threads) smem.row_index[i / 16][i % 16] = float(i / 16);
  Fragments<Element, d> fragments;
  for (auto& tiles_of_O : fragments.O)
    for (Accumulator& tile : tiles_of_O) wmma::fill_fragment(tile, 0.0f);
  __pipeline_wait_prior(0);
  __syncwarp();  // Q is there for all lanes
  for (int i = 0; i < d / 8 && Q_in_registers<d>; ++i)
    wmma::load_matrix_sync(fragments.Q[i % 2][i / 2], &smem.Q[warp][i % 2 * 16][i / 2 * 16], d + pad_half);

  RowState row;
  for (int j = 0; j < tiles; ++j) {
    __pipeline_wait_prior(0);
    __syncthreads();  // K_j is there, with two copies V_j too; nobody reads what the next loads overwrite
    if (copies<d> == 1) load(smem.V, V, j);
    K += Bc * d, V += Bc * d;  // to tile j + 1
    if (copies<d> == 2 && j + 1 < tiles) load(smem.K, K, j + 1), load(smem.V, V, j + 1);
    __pipeline_commit();
    for (int first_key = 0; first_key < Bc; first_key += step<d, Bc>) {
      multiply_QK(smem, fragments, j % copies<d>, first_key);  // Sᵀ = K Qᵀ, (step, 32) per warp
      const float rescale = online_softmax(smem, row, first_query + lane, std::int64_t(j) * Bc + first_key, j, sizes,
                                           scale);  // P = exp2(S - m), (32, step)
      rescale_O(smem, fragments, rescale);          // O = O·rescale, (32, d)
      if (copies<d> == 1) {                         // then a step is the whole tile
        __pipeline_wait_prior(0);
        __syncthreads();  // V_j is there; nobody reads K_j any more
        if (j + 1 < tiles) load(smem.K, K, j + 1);
        __pipeline_commit();
      }
      accumulate_PV(smem, fragments, j % copies<d>, first_key);  // O += P V, (32, d)
    }
  }
  write_output(smem, fragments, row, O + first_row * d, lse + first_row, rows);  // O / l, m + log l
}

template <int d, int Br, int Bc, int warps, class Element>
void start(const ForwardCall<Element>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t query_tiles = (Nq + Br - 1) / Br;
  const dim3 grid = workbook::cuda::grid_of(query_tiles * B * H, "B·H·⌈Nq/Br⌉");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<Element, d, Br, Bc, warps>, grid, dim3(32 * warps),
                         sizeof(Shared<Element, d, Br, Bc, warps>), call.Q, call.K, call.V, call.O, call.lse,
                         Sizes{Nq, Nk, call.causal}, int(B * H), query_tiles, call.scale * log2_e);
}

}  // namespace

template <class Element>
void causal(const ForwardCall<Element>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call); });
}

template <class Element>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(
      d, tiles, [](auto d, auto t) { return sizeof(Shared<Element, d, t.Br, t.Bc, t.warps>); });
}
template <class Element>
int keys_per_step(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles, [](auto d, auto t) { return step<d, t.Bc>; });
}

}  // namespace ch05
