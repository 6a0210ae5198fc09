// Chapter 15, which pairs count: the kernel as a sequence of the phases of phases.hpp, masks.hpp and scores.hpp, and
// the launch. which_pairs_bf16.cu compiles this file once more, for bf16.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3; Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 15
#include "which_pairs.hpp"

#include <cstdint>

#include "asked_for.hpp"
#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"

namespace ch15 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; in which_pairs_bf16.cu __nv_bfloat16

/// One block per tile of queries and head of Q, the last ones first: they see the most keys. Warp w owns rows 32·w to
/// 32·w + 31 and shares K and V with the others. Of K and V there may be fewer heads: one for `given.group` of Q.
template <int d, int Br, int Bc, int warps, class Change>
__global__ void __launch_bounds__(32 * warps, 8 / warps) attention(const Element* __restrict__ Q,  // (heads, Nq, d)
                                                                   const Element* __restrict__ K,  // (heads, Nk, d)
                                                                   const Element* __restrict__ V,  // (heads, Nk, d)
                                                                   Element* __restrict__ O,        // (heads, Nq, d)
                                                                   float* __restrict__ lse,        // (heads, Nq)
                                                                   SeenKeys seen, Change any_head, Given given) {
  auto& smem = workbook::cuda::dynamic_shared<Shared<Element, d, Bc, warps>>();
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int head = blockIdx.x / given.blocks, tile = given.blocks - 1 - blockIdx.x % given.blocks;
  std::int64_t first_row = std::int64_t(head) * seen.Nq, first_key = std::int64_t(head / given.group) * seen.Nk;
  const Sequence sequence = enter_sequence(seen, given, tile, Br);  // from here on there is no other
  const int block_query = sequence.tile * Br, first_query = block_query + 32 * warp;
  first_row += sequence.first + first_query, first_key += sequence.first;  // of this warp, and the first that may count
  const int rows = seen.Nq - first_query;                                  // up to 32 are its own, none if negative
  const Range queries{first_query, min(seen.Nq, first_query + 32)};
  const Range tiles = seen.template tiles<Bc>({block_query, min(seen.Nq, block_query + Br)});
  const Change change = any_head.of_head(head % given.heads, given.heads);
  std::int64_t next = (first_key + tiles.first * Bc) * d;  // the first element of the tile that is copied next
  Registers<Element, d> own;
  begin_with_sink(own, given.sink == nullptr ? -INFINITY : given.sink[head % given.heads] * log2_e);
  // Starts the copies of K_j and V_j, (Bc, d) each, to stage j % 2, and ends a group; without a tile j an empty one.
  // The tiles are asked for in their order.
  const auto load_KV = [&](int j) {
    if (j < tiles.last) {
      load_tile<32 * warps>(smem.K[j % 2], K + next, seen.Nk - j * Bc, thread);
      load_tile<32 * warps>(smem.V[j % 2], V + next, seen.Nk - j * Bc, thread);
      next += Bc * d;
    }
    cp_async_commit_group();
  };

  load_tile<32>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  cp_async_commit_group();
  load_KV(tiles.first);
  cp_async_wait_group<1>();
  __syncwarp();  // Q is there for all lanes of its warp; K_0 and V_0 are still under way
#pragma unroll
  for (int c = 0; c < d / 16 && Q_in_registers<d>; ++c)
    load_A(own.Q[0][c], smem.Q[warp], 0, 16 * c), load_A(own.Q[1][c], smem.Q[warp], 16, 16 * c);
  for (int j = tiles.first; j < tiles.last; ++j) {
    cp_async_wait_group<0>();
    __syncthreads();  // K_j and V_j are there for all threads; nobody reads the stage that the next copies fill
    load_KV(j + 1);
    const TileClass tile_class = seen.class_of(queries, j * Bc, (j + 1) * Bc);
    if (tile_class == TileClass::empty) continue;  // for this warp
    Scores<Bc> S[row_tiles];
    multiply_QK<Element, d, Bc>(S, own, smem.Q[warp], smem.K[j % 2]);                   // S = Q Kᵀ, (32, Bc) per warp
    move_to_maximum<Element, d, Bc>(own, S, change, seen, tile_class, first_query, j);  // S = change(S) - m
    accumulate_PV<Element, d, Bc>(own, S, smem.V[j % 2]);                               // O += exp2(S) V, (32, d)
  }
  write_output(own, smem.Q[warp], O + first_row * d, lse + first_row, rows);  // O / l, m + log l
}

template <int d, int Br, int Bc, int warps, class Change>
void start(const ForwardCall<Element>& call, const Change& change) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t q_tiles = blocks_of_head(call.mask, call.shape.Nq, Br);
  const dim3 grid = workbook::cuda::grid_of(q_tiles * B * H, "B·H·⌈Nq/Br⌉");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)): `change` gives scores in units of log2.
  workbook::cuda::launch(attention<d, Br, Bc, warps, Change>, grid, dim3(32 * warps),
                         sizeof(Shared<Element, d, Bc, warps>), call.Q, call.K, call.V, call.O, call.lse,
                         seen_keys(call), change, Given{int(q_tiles), int(H), int(H / Hkv), call.sink, call.starts});
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void which_pairs(const ForwardCall<E>& call, const Tiles& tiles) {
  with_change(call, [&](const auto& change) {
    workbook::cuda::with_sizes<built>(call.shape.d, tiles,
                                      [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call, change); });
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
