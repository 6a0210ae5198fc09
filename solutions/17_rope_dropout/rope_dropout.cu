// Chapter 17, RoPE and dropout: the kernel as a sequence of the phases of phases.hpp and of chapter 15's phases.hpp,
// and the launch. rope_dropout_bf16.cu compiles this file once more, for bf16.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3; Su et al. 2021 (RoFormer), section 3.2.
// Test it: ./workbook test 17
#include "rope_dropout.hpp"

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch17 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; rope_dropout_bf16.cu compiles the kernel again, with __nv_bfloat16

/// The sizes of a head. causal: query i attends to the keys j <= i + (Nk - Nq) only. (No GPU has memory for 2^31 rows.)
struct Sizes {
  int Nq, Nk;
  bool causal;
};

/// One thread block per Q tile and head; with the causal mask, the longest Q tiles start first. Warp w computes rows
/// 32·w to 32·w + 31 of the Q tile. All warps share K and V.
template <int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(32 * warps, 8 / warps)
    attention(const Element* __restrict__ Q,     // (heads, Nq, d)
              const Element* __restrict__ K,     // (heads, Nk, d)
              const Element* __restrict__ V,     // (heads, Nk, d)
              Element* __restrict__ O,           // (heads, Nq, d)
              float* __restrict__ lse,           // (heads, Nq)
              const float2* __restrict__ table,  // rotations (max(Nq, Nk), d / 2), or nullptr
              Sizes sizes, Dropout dropout, int q_tiles, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<Shared<Element, d, Bc, warps>>();
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int head = blockIdx.x / q_tiles, tile = blockIdx.x % q_tiles;
  const int block_query = (sizes.causal ? q_tiles - 1 - tile : tile) * Br, first_query = block_query + 32 * warp;
  const std::int64_t first_row = std::int64_t(head) * sizes.Nq + first_query;  // of this warp, in Q, O and lse
  const int rows = sizes.Nq - first_query;  // rows left from there on; may be negative
  K += std::int64_t(head) * sizes.Nk * d, V += std::int64_t(head) * sizes.Nk * d;
  const int diagonal = sizes.Nk - sizes.Nq;  // query i attends to the keys up to i + diagonal
  const int last_key = sizes.causal ? min(sizes.Nq, block_query + Br) + diagonal : sizes.Nk;
  const int tiles = (max(0, last_key) + Bc - 1) / Bc;
  // TODO(17.6) rotate_Q and rotate_K(j) call rotate_tile for what this thread has copied of Q and of K_j. Pass the row
  // of the table for the tile's first row, the number of rows that exist, and this thread's index among the threads
  // that copy the tile (about 4 lines).
  // STUB: const auto rotate_Q = [&] { WORKBOOK_TODO(17.6); };
  // STUB: const auto rotate_K = [&](int) { WORKBOOK_TODO(17.6); };
  // BEGIN 17.6
  const int Q_table_row = max(0, diagonal) + first_query, K_table_row = max(0, -diagonal);  // first rows in the table
  const auto rotate_Q = [&] { rotate_tile<32>(smem.Q[warp], table, Q_table_row, rows, lane); };
  const auto rotate_K = [&](int j) {
    rotate_tile<32 * warps>(smem.K[j % 2], table, K_table_row + j * Bc, sizes.Nk - j * Bc, thread);
  };
  // END 17.6
  Registers<Element, d> registers;
  clear(registers, -INFINITY, 0);
  // Starts the copies of K_j and V_j, (Bc, d) each, to stage j % 2, and ends the group, which is empty if there is no
  // tile j. Must be called with j in increasing order.
  const auto load_KV = [&](int j) {
    if (j < tiles) {
      load_tile<32 * warps>(smem.K[j % 2], K, sizes.Nk - j * Bc, thread);
      load_tile<32 * warps>(smem.V[j % 2], V, sizes.Nk - j * Bc, thread);
      K += Bc * d, V += Bc * d;  // to tile j + 1
    }
    cp_async_commit_group();
  };

  load_tile<32>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  cp_async_commit_group();
  load_KV(0);
  cp_async_wait_group<1>();
  rotate_Q();
  __syncwarp();  // Q is visible to all lanes of its warp; the first K and V tiles are still in flight
#pragma unroll
  for (int c = 0; c < d / 16 && Q_in_registers<d>; ++c)
    load_A(registers.Q[0][c], smem.Q[warp], 0, 16 * c), load_A(registers.Q[1][c], smem.Q[warp], 16, 16 * c);
  for (int j = 0; j < tiles; ++j) {
    cp_async_wait_group<0>();
    rotate_K(j);
    __syncthreads();  // K_j and V_j are visible to all threads; no thread still reads the other stage
    load_KV(j + 1);
    const int keys = sizes.Nk - j * Bc, visible = sizes.causal ? first_query + diagonal + 1 - j * Bc : keys;
    Scores<Bc> S[row_tiles];
    multiply_QK<Element, d, Bc>(S, registers, smem.Q[warp], smem.K[j % 2]);  // S = Q Kᵀ, (32, Bc) per warp
    move_to_maximum<Element, d, Bc>(registers, S, scale, keys, visible, j);  // S = S·scale - m, O = O·rescale
    dropout.dropped > 0
        ? accumulate_PV<true>(registers, S, smem.V[j % 2], dropout, head, first_query, j * Bc)    // O += P V,
        : accumulate_PV<false>(registers, S, smem.V[j % 2], dropout, head, first_query, j * Bc);  // (32, d)
  }
  write_output(registers, smem.Q[warp], O + first_row * d, lse + first_row, rows, dropout.kept_scale);
}

template <int d, int Br, int Bc, int warps>
void start(const ForwardCall<Element>& call, float2* table) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t q_tiles = (Nq + Br - 1) / Br;
  const dim3 grid = workbook::cuda::grid_of(q_tiles * B * H, "B·H·⌈Nq/Br⌉");
  make_table<d>(call, table);
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps>, grid, dim3(32 * warps), sizeof(Shared<Element, d, Bc, warps>),
                         call.Q, call.K, call.V, call.O, call.lse, call.mask.rope ? table : nullptr,
                         Sizes{int(Nq), int(Nk), call.causal()}, dropout_of(call.mask), q_tiles, call.scale * log2_e);
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void rope_dropout(const ForwardCall<E>& call, float2* table, const Tiles& tiles) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles,
                                    [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call, table); });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<E, d, t.Bc, t.warps>); });
}
template void rope_dropout(const ForwardCall<Element>&, float2*, const Tiles&);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch17
