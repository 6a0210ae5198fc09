// Chapter 16, block-sparse masks: the kernel as a sequence of the phases of scores.hpp and of chapter 15's phases.hpp,
// and the launch. any_pair_bf16.cu compiles this file once more, for bf16. At d = 128 ptxas of CUDA 13.0 spills up to
// 88 bytes.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3; Dong et al. 2024 (FlexAttention), section 3.
// Test it: ./workbook test 16
#include "any_pair.hpp"

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "lists.hpp"
#include "scores.hpp"

namespace ch16 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; in any_pair_bf16.cu __nv_bfloat16

/// One thread block per Q tile and head of Q. The last Q tiles come first, because they may attend to the most keys.
/// Warp w has rows 32·w to 32·w + 31 and shares K and V with the other warps. `group` heads of Q share a head of K and
/// V.
template <int d, int Br, int Bc, int warps, class MaskMod>
__global__ void __launch_bounds__(32 * warps, 8 / warps)
    attention(const Element* __restrict__ Q,  // (heads, Nq, d)
              const Element* __restrict__ K,  // (heads, Nk, d)
              const Element* __restrict__ V,  // (heads, Nk, d)
              Element* __restrict__ O,        // (heads, Nq, d)
              float* __restrict__ lse,        // (heads, Nq)
              PairMask<MaskMod> mask, BlockLists lists, int group, float scale_log2) {
  auto& smem = workbook::cuda::dynamic_shared<Shared<Element, d, Bc, warps>>();
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int q_tiles = (mask.Nq + Br - 1) / Br, kv_tiles = (mask.Nk + Bc - 1) / Bc;
  const int head = blockIdx.x / q_tiles, q_tile = q_tiles - 1 - blockIdx.x % q_tiles;
  const int first_query = q_tile * Br + 32 * warp;  // the warp's first query
  const int rows = mask.Nq - first_query;           // the warp has up to 32 of them, none if negative
  const std::int64_t first_row = std::int64_t(head) * mask.Nq + first_query;
  const std::int64_t first_key = std::int64_t(head / group) * mask.Nk;
  K += first_key * d, V += first_key * d;
  Registers<Element, d> registers;
  clear(registers, -INFINITY, 0);
  BlockIterator iterator = block_iterator(lists, q_tile, kv_tiles);
  int next = 0;  // the K/V tile that load_KV has copied last
  // Starts the copies of K_j and V_j, (Bc, d) each, of block n to stage n % 2, and commits a group, which is empty
  // after the last block. Must be called with n in increasing order.
  const auto load_KV = [&](int n) {
    if (n < iterator.count) {
      next = iterator.block(n);
      const std::int64_t first = std::int64_t(next) * Bc * d;
      load_tile<32 * warps>(smem.K[n % 2], K + first, mask.Nk - next * Bc, thread);
      load_tile<32 * warps>(smem.V[n % 2], V + first, mask.Nk - next * Bc, thread);
    }
    cp_async_commit_group();
  };

  load_tile<32>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  cp_async_commit_group();
  load_KV(0);
  cp_async_wait_group<1>();
  __syncwarp();  // Q is visible to all lanes of its warp; the first K and V tiles are still in flight
#pragma unroll
  for (int c = 0; c < d / 16 && Q_in_registers<d>; ++c)
    load_A(registers.Q[0][c], smem.Q[warp], 0, 16 * c), load_A(registers.Q[1][c], smem.Q[warp], 16, 16 * c);
  for (int n = 0; n < iterator.count; ++n) {
    const int j = next;  // the K/V tile of block n
    cp_async_wait_group<0>();
    __syncthreads();  // K_j and V_j are visible to all threads; no thread still reads the other stage
    load_KV(n + 1);
    const bool partial = n < iterator.partial_count;
    Scores<Bc> S[row_tiles];
    multiply_QK<Element, d, Bc>(S, registers, smem.Q[warp], smem.K[n % 2]);  // S = Q Kᵀ, (32, Bc) per warp
    move_to_maximum<Element, d, Bc>(registers, S, scale_log2, mask, partial, first_query, j);  // S = S·scale - m
    accumulate_PV<Element, d, Bc>(registers, S, smem.V[n % 2]);  // O += exp2(S) V, (32, d)
  }
  write_output(registers, smem.Q[warp], O + first_row * d, lse + first_row, rows);  // O / l, m + log l
}

template <int d, int Br, int Bc, int warps, class MaskMod>
void start(const ForwardCall<Element>& call, const Scratch& scratch, const PairMask<MaskMod>& mask) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const BlockTable table = make_lists<Br, Bc>(mask, scratch, /*transposed=*/false);
  const dim3 grid = workbook::cuda::grid_of(table.rows * B * H, "B·H·⌈Nq/Br⌉");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps, MaskMod>, grid, dim3(32 * warps),
                         sizeof(Shared<Element, d, Bc, warps>), call.Q, call.K, call.V, call.O, call.lse, mask,
                         scratch.lists, int(H / Hkv), call.scale * log2_e);
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void any_pair(const ForwardCall<E>& call, const Scratch& scratch, const Tiles& tiles) {
  with_mask(call, call.starts, scratch.documents, [&](const auto& mask) {
    workbook::cuda::with_sizes<built>(call.shape.d, tiles,
                                      [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call, scratch, mask); });
  });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<E, d, t.Bc, t.warps>); });
}
template void any_pair(const ForwardCall<Element>&, const Scratch&, const Tiles&);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch16
