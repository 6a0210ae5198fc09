// Chapter 22: the kernel of one step. Chapter 8's, from O, m and l in device memory to O, m and l there.
#pragma once

#include <cstdint>

#include "ring.hpp"
#include "shards.hpp"
#include "state.hpp"

namespace ch22 {
namespace {

using ch08::Scores, ch08::Shared;
using workbook::cuda::cp_async_commit_group, workbook::cuda::cp_async_wait_group;

/// The memory of a rank that a step uses. Q and O: (heads, queries, d), lse: (heads, queries); K and V of the source:
/// (heads of K, keys, d).
template <class Element>
struct RankTensors {
  const Element *Q, *K, *V;
  Element* O;
  float* lse;
  State state;
};

/// The sizes of a launch: the rank's queries, the keys of a head of K and V, those that the step uses, and how many
/// heads of Q share one of K and V. A step without an earlier one starts from O = 0, l = 0.
struct Sizes {
  int queries, first_query, finished;
  int keys_per_head, keys, group;
  bool causal, starts;
};

/// One thread block per Q tile and head. Warp w computes rows 32·w to 32·w + 31 of the Q tile.
template <class Element, int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(32 * warps, 8 / warps)
    attention_step(RankTensors<Element> rank, Sizes sizes, int q_tiles, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<Shared<Element, d, Bc, warps>>();
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int head = blockIdx.x / q_tiles, tile = blockIdx.x % q_tiles;
  const int block_query = sizes.first_query + (sizes.causal ? q_tiles - 1 - tile : tile) * Br;
  const int first_query = block_query + 32 * warp, rows = sizes.queries - first_query;  // rows may be negative
  const std::int64_t first_row = std::int64_t(head) * sizes.queries + first_query;
  const State state{rank.state.O + first_row * d, rank.state.m + first_row, rank.state.l + first_row};
  const Element* K = rank.K + std::int64_t(head / sizes.group) * sizes.keys_per_head * d;
  const Element* V = rank.V + std::int64_t(head / sizes.group) * sizes.keys_per_head * d;
  const int diagonal = sizes.keys - sizes.queries;
  const int last_key = sizes.causal ? min(sizes.queries, block_query + Br) + diagonal : sizes.keys;
  const int tiles = (max(0, last_key) + Bc - 1) / Bc;
  const auto load_KV = [&](int j) {
    if (j < tiles) {
      ch08::load_tile<32 * warps>(smem.K[j % 2], K + std::int64_t(j) * Bc * d, sizes.keys - j * Bc, thread);
      ch08::load_tile<32 * warps>(smem.V[j % 2], V + std::int64_t(j) * Bc * d, sizes.keys - j * Bc, thread);
    }
    cp_async_commit_group();
  };
  ch08::load_tile<32>(smem.Q[warp], rank.Q + first_row * d, rows, lane);
  cp_async_commit_group();
  load_KV(0);
  ch08::Registers<Element, d> registers;
  load_state(registers, state, sizes.starts ? 0 : rows);
  cp_async_wait_group<1>();
  __syncwarp();  // Q is visible to all lanes of its warp
#pragma unroll
  for (int c = 0; c < d / 16 && ch08::Q_in_registers<d>; ++c)
    ch08::load_A(registers.Q[0][c], smem.Q[warp], 0, 16 * c), ch08::load_A(registers.Q[1][c], smem.Q[warp], 16, 16 * c);
  for (int j = 0; j < tiles; ++j) {
    cp_async_wait_group<0>();
    __syncthreads();  // K_j and V_j are visible to all threads; no thread still reads the other stage
    load_KV(j + 1);
    Scores<Bc> S[row_tiles];
    ch08::multiply_QK<Element, d, Bc>(S, registers, smem.Q[warp], smem.K[j % 2]);  // S = Q Kᵀ, (32, Bc) per warp
    const int keys = sizes.keys - j * Bc, visible = sizes.causal ? first_query + diagonal + 1 - j * Bc : keys;
    ch08::move_to_maximum<Element, d, Bc>(registers, S, scale, keys, visible, j);
    ch08::accumulate_PV<Element, d, Bc>(registers, S, smem.V[j % 2]);  // O += exp2(S) V, (32, d)
  }
  const int finished = sizes.finished - first_query;  // of this warp's rows
  store_state(registers, state, finished, rows);
  ch08::write_output(registers, smem.Q[warp], rank.O + first_row * d, rank.lse + first_row, min(rows, finished));
}

}  // namespace
}  // namespace ch22
