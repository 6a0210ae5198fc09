// Chapter 15, masks and score modifications: the kernel as a sequence of the phases of phases.hpp, masks.hpp and
// scores.hpp, and the launch. which_pairs_bf16.cu compiles this file once more, for bf16.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3; Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 15
#include "which_pairs.hpp"

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "problem.hpp"

namespace ch15 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; in which_pairs_bf16.cu __nv_bfloat16

/// One thread block per Q tile and head of Q. The last Q tiles come first, because they may attend to the most keys.
/// Warp w has rows 32·w to 32·w + 31 and shares K and V with the other warps. `problem.group` heads of Q share a head
/// of K and V.
template <int d, int Br, int Bc, int warps, class ScoreMod>
__global__ void __launch_bounds__(32 * warps, 8 / warps)
    attention(const Element* __restrict__ Q,  // (heads, Nq, d)
              const Element* __restrict__ K,  // (heads, Nk, d)
              const Element* __restrict__ V,  // (heads, Nk, d)
              Element* __restrict__ O,        // (heads, Nq, d)
              float* __restrict__ lse,        // (heads, Nq)
              WindowMask mask, ScoreMod base_mod, Problem problem) {
  auto& smem = workbook::cuda::dynamic_shared<Shared<Element, d, Bc, warps>>();
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int q_tiles = problem.tiles_per_head, head = blockIdx.x / q_tiles, tile = q_tiles - 1 - blockIdx.x % q_tiles;
  std::int64_t first_row = std::int64_t(head) * mask.Nq, first_key = std::int64_t(head / problem.group) * mask.Nk;
  const Sequence sequence = enter_sequence(mask, problem, tile, Br);  // `mask` is now that of the sequence
  const int block_query = sequence.tile * Br, first_query = block_query + 32 * warp, rows = mask.Nq - first_query;
  first_row += sequence.first + first_query, first_key += sequence.first;  // the warp's first row, and key 0
  const Range queries{first_query, min(mask.Nq, first_query + 32)};
  const Range tiles = mask.template kv_tiles<Bc>({block_query, min(mask.Nq, block_query + Br)});
  const ScoreMod score_mod = base_mod.for_head(head % problem.heads, problem.heads);
  std::int64_t next = (first_key + tiles.first * Bc) * d;  // the offset of the tile that is copied next
  Registers<Element, d> registers;
  begin_with_sink(registers, problem.sink == nullptr ? -INFINITY : problem.sink[head % problem.heads] * log2_e);
  // Starts the copies of K_j and V_j, (Bc, d) each, to stage j % 2, and ends the group, which is empty if there is no
  // tile j. Must be called with j in increasing order.
  const auto load_KV = [&](int j) {
    if (j < tiles.last) {
      load_tile<32 * warps>(smem.K[j % 2], K + next, mask.Nk - j * Bc, thread);
      load_tile<32 * warps>(smem.V[j % 2], V + next, mask.Nk - j * Bc, thread);
      next += Bc * d;
    }
    cp_async_commit_group();
  };

  load_tile<32>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  cp_async_commit_group();
  load_KV(tiles.first);
  cp_async_wait_group<1>();
  __syncwarp();  // Q is visible to all lanes of its warp; the first K and V tiles are still in flight
#pragma unroll
  for (int c = 0; c < d / 16 && Q_in_registers<d>; ++c)
    load_A(registers.Q[0][c], smem.Q[warp], 0, 16 * c), load_A(registers.Q[1][c], smem.Q[warp], 16, 16 * c);
  for (int j = tiles.first; j < tiles.last; ++j) {
    cp_async_wait_group<0>();
    __syncthreads();  // K_j and V_j are visible to all threads; no thread still reads the other stage
    load_KV(j + 1);
    const TileClass tile_class = mask.classify(queries, j * Bc, (j + 1) * Bc);
    if (tile_class == TileClass::empty) continue;  // other warps may need this tile
    Scores<Bc> S[row_tiles];
    multiply_QK<Element, d, Bc>(S, registers, smem.Q[warp], smem.K[j % 2]);  // S = Q Kᵀ, (32, Bc) per warp
    move_to_maximum<Element, d, Bc>(registers, S, score_mod, mask, tile_class, first_query, j);  // S = score_mod(S) - m
    accumulate_PV<Element, d, Bc>(registers, S, smem.V[j % 2]);  // O += exp2(S) V, (32, d)
  }
  write_output(registers, smem.Q[warp], O + first_row * d, lse + first_row, rows);  // O / l, m + log l
}

template <int d, int Br, int Bc, int warps, class ScoreMod>
void start(const ForwardCall<Element>& call, const ScoreMod& score_mod) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t q_tiles = tiles_per_head(call.mask, call.shape.Nq, Br);
  const dim3 grid = workbook::cuda::grid_of(q_tiles * B * H, "B·H·⌈Nq/Br⌉");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps, ScoreMod>, grid, dim3(32 * warps),
                         sizeof(Shared<Element, d, Bc, warps>), call.Q, call.K, call.V, call.O, call.lse,
                         window_mask(call), score_mod,
                         Problem{int(q_tiles), int(H), int(H / Hkv), call.sink, call.starts});
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void which_pairs(const ForwardCall<E>& call, const Tiles& tiles) {
  with_score_mod(call, [&](const auto& score_mod) {
    workbook::cuda::with_sizes<built>(call.shape.d, tiles,
                                      [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call, score_mod); });
  });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<E, d, t.Bc, t.warps>); });
}
template void which_pairs(const ForwardCall<Element>&, const Tiles&);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch15
