// Chapter 8, registers: the kernel as a sequence of the phases of phases.hpp, and the launch. registers_bf16.cu
// compiles this file once more, for bf16.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3.
// Test it: ./workbook test 8
#include "registers.hpp"

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch08 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; registers_bf16.cu compiles the kernel again, with __nv_bfloat16

/// The sizes of a head. causal: query i attends to the keys j <= i + (Nk - Nq) only. (No GPU has memory for 2^31 rows.)
struct Sizes {
  int Nq, Nk;
  bool causal;
};

/// One thread block per Q tile and head; with the causal mask, the longest Q tiles start first. Warp w computes rows
/// 32·w to 32·w + 31 of the Q tile. All warps share K and V.
template <int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(32 * warps, 8 / warps) attention(const Element* __restrict__ Q,  // (heads, Nq, d)
                                                                   const Element* __restrict__ K,  // (heads, Nk, d)
                                                                   const Element* __restrict__ V,  // (heads, Nk, d)
                                                                   Element* __restrict__ O,        // (heads, Nq, d)
                                                                   float* __restrict__ lse,        // (heads, Nq)
                                                                   Sizes sizes, int q_tiles, float scale) {
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
  Registers<Element, d> registers;
  clear(registers);
  // Starts the copies of K_j and V_j, (Bc, d) each, to stage j % 2, and ends the group, which is empty if there is no
  // tile j. Must be called with j in increasing order.
  [[maybe_unused]] const auto load_KV = [&](int j) {
    if (j < tiles) {
      load_tile<32 * warps>(smem.K[j % 2], K, sizes.Nk - j * Bc, thread);
      load_tile<32 * warps>(smem.V[j % 2], V, sizes.Nk - j * Bc, thread);
      K += Bc * d, V += Bc * d;  // to tile j + 1
    }
    cp_async_commit_group();
  };
  // S = S·scale - m, masked if any row of the warp has a masked key in tile j; O = O·rescale.
  [[maybe_unused]] const auto softmax = [&](Scores<Bc>(&S)[row_tiles], int j) {
    const int keys = sizes.Nk - j * Bc, visible = sizes.causal ? first_query + diagonal + 1 - j * Bc : keys;
    move_to_maximum<Element, d, Bc>(registers, S, scale, keys, visible, j);
  };

  // TODO(8.7) The two-stage pipeline (about 17 lines):
  //   start copying Q, as one group; start copying K_0 and V_0, as the next group
  //   wait for Q; load it if Q_in_registers<d>
  //   for each tile j:
  //     wait until K_j and V_j are visible to all threads; start the copies of tile j + 1
  //     S = Q K_jᵀ; softmax; O += P V_j
  //   write the output
  // BEGIN 8.7
  load_tile<32>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  cp_async_commit_group();
  load_KV(0);
  cp_async_wait_group<1>();
  __syncwarp();  // Q is visible to all lanes of its warp; the first K and V tiles are still in flight
#pragma unroll
  for (int c = 0; c < d / 16 && Q_in_registers<d>; ++c)
    load_A(registers.Q[0][c], smem.Q[warp], 0, 16 * c), load_A(registers.Q[1][c], smem.Q[warp], 16, 16 * c);
  for (int j = 0; j < tiles; ++j) {
    cp_async_wait_group<0>();
    __syncthreads();  // K_j and V_j are visible to all threads; no thread still reads the other stage
    load_KV(j + 1);
    Scores<Bc> S[row_tiles];
    multiply_QK<Element, d, Bc>(S, registers, smem.Q[warp], smem.K[j % 2]);  // S = Q Kᵀ, (32, Bc) per warp
    softmax(S, j);                                                           // S = S·scale - m, O = O·rescale
    accumulate_PV<Element, d, Bc>(registers, S, smem.V[j % 2]);              // O += exp2(S) V, (32, d)
  }
  write_output(registers, smem.Q[warp], O + first_row * d, lse + first_row, rows);  // O / l, m + log l
  // END 8.7
}

template <int d, int Br, int Bc, int warps>
void start(const ForwardCall<Element>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t q_tiles = (Nq + Br - 1) / Br;
  const dim3 grid = workbook::cuda::grid_of(q_tiles * B * H, "B·H·⌈Nq/Br⌉");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps>, grid, dim3(32 * warps), sizeof(Shared<Element, d, Bc, warps>),
                         call.Q, call.K, call.V, call.O, call.lse, Sizes{int(Nq), int(Nk), call.causal()}, q_tiles,
                         call.scale * log2_e);
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void registers(const ForwardCall<E>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call); });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<E, d, t.Bc, t.warps>); });
}
template void registers(const ForwardCall<Element>&, const Tiles&);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch08
