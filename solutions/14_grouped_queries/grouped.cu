// Chapter 14, grouped-query attention: the kernel as a sequence of the phases of phases.hpp and packed_rows.hpp, and
// the launch. grouped_bf16.cu compiles this file once more, for bf16.
//
// Source: Ainslie et al. 2023 (GQA), section 2.2; Dao 2023 (FlashAttention-2), sections 3.1 to 3.3.
// Test it: ./workbook test 14
#include "grouped.hpp"

#include <cstdint>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "packed_rows.hpp"

namespace ch14 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; grouped_bf16.cu compiles the kernel again, with __nv_bfloat16

/// The sizes of a head; `group`: the heads of Q per head of K and V; `packed`: the heads that are packed, `group` or 1.
struct Sizes {
  int Nq, Nk, group, packed;
  bool causal;
};

/// One thread block per Q tile of a pack; with the causal mask, the longest Q tiles start first. Warp w computes rows
/// 32·w to 32·w + 31 of the Q tile. All warps share K and V.
template <int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(32 * warps, 8 / warps) attention(const Element* __restrict__ Q,  // (B·H, Nq, d)
                                                                   const Element* __restrict__ K,  // (B·Hkv, Nk, d)
                                                                   const Element* __restrict__ V,  // (B·Hkv, Nk, d)
                                                                   Element* __restrict__ O,        // (B·H, Nq, d)
                                                                   float* __restrict__ lse,        // (B·H, Nq)
                                                                   Sizes sizes, int q_tiles, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<Shared<Element, d, Bc, warps>>();
  const int warp = threadIdx.x / 32;
  const int pack = blockIdx.x / q_tiles, tile = blockIdx.x % q_tiles;
  const int block_row = (sizes.causal ? q_tiles - 1 - tile : tile) * Br, first_row = block_row + 32 * warp;
  const PackedRows rows{sizes.packed, sizes.Nq};
  const RowMask mask{sizes.Nk, sizes.causal};
  // TODO(14.1) The first head of this block's pack, and the head of K and V that the pack reads, both indexed across
  // the batch. Then advance the five pointers to these heads, with 64-bit offsets (about 3 lines).
  // BEGIN 14.1
  const std::int64_t first_head = std::int64_t(pack) * sizes.packed, kv_head = first_head / sizes.group;
  Q += first_head * sizes.Nq * d, O += first_head * sizes.Nq * d, lse += first_head * sizes.Nq;
  K += kv_head * sizes.Nk * d, V += kv_head * sizes.Nk * d;
  // END 14.1
  const int tiles = mask.template kv_tiles<Bc>(rows, block_row, Br);
  const WarpMask warp_mask = mask_of_warp(mask, rows, first_row);
  Registers<Element, d> registers;
  clear(registers);
  // Starts the copies of K_j and V_j, (Bc, d) each, to stage j % 2, and ends the group, which is empty if there is no
  // tile j. Must be called with j in increasing order.
  const auto load_KV = [&](int j) {
    if (j < tiles) {
      load_tile<32 * warps>(smem.K[j % 2], K, sizes.Nk - j * Bc);
      load_tile<32 * warps>(smem.V[j % 2], V, sizes.Nk - j * Bc);
      K += Bc * d, V += Bc * d;  // to tile j + 1
    }
    cp_async_commit_group();
  };

  load_rows(smem.Q[warp], Q, rows, first_row);  // (32, d)
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
    move_to_maximum<Element, d, Bc>(registers, S, scale, warp_mask, j);      // S = S·scale - m, O = O·rescale
    accumulate_PV<Element, d, Bc>(registers, S, smem.V[j % 2]);              // O += exp2(S) V, (32, d)
  }
  float row_lse[row_tiles][2];
  finish(registers, smem.Q[warp], row_lse);  // O / l, m + log l
  store_rows(smem.Q[warp], row_lse, O, lse, rows, first_row);
}

/// The number of heads to pack: `group` if packing raises the fill ratio of the tiles by more than a ninth, else 1.
int heads_packed(std::int64_t Nq, std::int64_t group, int Br, Packing packing) {
  // TODO(14.6) Compare the fill ratios of Nq rows and of group·Nq rows. Packing::never and Packing::always override the
  // rule (about 5 lines).
  // BEGIN 14.6
  const auto fill = [&](std::int64_t rows) { return double(rows) / double((rows + Br - 1) / Br * Br); };
  const bool pays = fill(Nq) < 0.9 * fill(group * Nq);
  return packing == Packing::always || (packing == Packing::automatic && pays) ? int(group) : 1;
  // END 14.6
}

template <int d, int Br, int Bc, int warps>
void start(const ForwardCall<Element>& call, Packing packing) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const int packed = heads_packed(Nq, H / Hkv, Br, packing);
  const std::int64_t q_tiles = (std::int64_t(packed) * Nq + Br - 1) / Br;
  const dim3 grid = workbook::cuda::grid_of(q_tiles * B * H / packed, "B·H/packed·⌈packed·Nq/Br⌉");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps>, grid, dim3(32 * warps), sizeof(Shared<Element, d, Bc, warps>),
                         call.Q, call.K, call.V, call.O, call.lse,
                         Sizes{int(Nq), int(Nk), int(H / Hkv), packed, call.causal()}, q_tiles, call.scale * log2_e);
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void grouped(const ForwardCall<E>& call, const Tiles& tiles, Packing packing) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles,
                                    [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call, packing); });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<E, d, t.Bc, t.warps>); });
}
template void grouped(const ForwardCall<Element>&, const Tiles&, Packing);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch14
