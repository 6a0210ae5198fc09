// Chapter 10, TMA and the pipeline: the producer, the kernel as a sequence of the phases of phases.hpp, and the launch.
// copy_engine_bf16.cu compiles this file again, for bf16.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3; Shah et al. 2024 (FlashAttention-3), section 3.1.
// Test it: ./workbook test 10
#include "copy_engine.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/cuda/convert.hpp"
#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch10 {
namespace {

using Element = WORKBOOK_ELEMENT;  // half; copy_engine_bf16.cu compiles the kernel again, with __nv_bfloat16

/// The sizes of a head. causal: query i attends to the keys j <= i + (Nk - Nq) only. (No GPU has memory for 2^31 rows.)
struct Sizes {
  int Nq, Nk;
  bool causal;
};

/// The producer, one thread: loads a Q tile (32, d) for each consumer warp, from query first_query of a head on. Then
/// it loads `tiles` tiles of K and V, (Bc, d) each, through the ring.
template <int d, int Bc, int warps>
__device__ __forceinline__ void produce(Shared<Element, d, Bc, warps>& smem, const TensorMap& Q, const TensorMap& K,
                                        const TensorMap& V, int first_query, int head, int tiles) {
  // TODO(10.6) Load each warp's Q with its mbarrier. Then fill the ring with all tiles, in the order in which the
  // consumers read them (about 7 lines).
  // BEGIN 10.6
  for (int warp = 0; warp < warps; ++warp) load_tile(smem.Q[warp], Q, smem.Q_full[warp], first_query + 32 * warp, head);
  Position position;
  for (int j = 0; j < tiles; ++j) {
    fill(smem, position, K, j * Bc, head);  // K_j
    fill(smem, position, V, j * Bc, head);  // V_j
  }
  // END 10.6
}

/// One thread block per Br queries of a head; with the causal mask, the longest ones start first. Warp w of the `warps`
/// consumers computes rows 32·w to 32·w + 31; the last warp is the producer. Tiles of Q and O have 32 rows.
template <int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(32 * (warps + 1), 1) attention(const __grid_constant__ TensorMap Q,  // (heads, Nq, d)
                                                                 const __grid_constant__ TensorMap K,  // (heads, Nk, d)
                                                                 const __grid_constant__ TensorMap V,  // (heads, Nk, d)
                                                                 const __grid_constant__ TensorMap O,  // (heads, Nq, d)
                                                                 float* __restrict__ lse,              // (heads, Nq)
                                                                 Sizes sizes, int q_tiles, float scale) {
  auto& smem = workbook::cuda::dynamic_shared<Shared<Element, d, Bc, warps>>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int head = blockIdx.x / q_tiles, tile = blockIdx.x % q_tiles;
  const int block_query = (sizes.causal ? q_tiles - 1 - tile : tile) * Br, first_query = block_query + 32 * warp;
  const int diagonal = sizes.Nk - sizes.Nq;  // query i attends to the keys up to i + diagonal
  const int last_key = sizes.causal ? min(sizes.Nq, block_query + Br) + diagonal : sizes.Nk;
  const int tiles = (max(0, last_key) + Bc - 1) / Bc;
  make_barriers(smem);
  if (warp == warps) {
    if (lane == 0) produce(smem, Q, K, V, block_query, head, tiles);
    return;
  }
  Registers<Element, d> registers;
  clear(registers);
  // S = S·scale - m, masked if any row of the warp has a masked key in tile j; O = O·rescale.
  [[maybe_unused]] const auto softmax = [&](Scores<Bc>(&S)[row_tiles], int j) {
    const int keys = sizes.Nk - j * Bc, visible = sizes.causal ? first_query + diagonal + 1 - j * Bc : keys;
    move_to_maximum<Element, d, Bc>(registers, S, scale, keys, visible, j);
  };

  // TODO(10.7) A consumer (about 15 lines):
  //   wait for this warp's Q, and load it if Q_in_registers<d>
  //   for each tile j:
  //     wait for K_j; S = Q K_jᵀ; release K_j's stage
  //     softmax
  //     wait for V_j; O += P V_j; release V_j's stage
  // BEGIN 10.7
  mbarrier_wait_parity(smem.Q_full[warp], 0);
#pragma unroll
  for (int c = 0; c < d / 16 && Q_in_registers<d>; ++c)
    load_A(registers.Q[0][c], smem.Q[warp], 0, 16 * c), load_A(registers.Q[1][c], smem.Q[warp], 16, 16 * c);
  Position position;
  for (int j = 0; j < tiles; ++j) {
    Scores<Bc> S[row_tiles];
    wait_until_full(smem, position);
    multiply_QK<Element, d, Bc>(S, registers, smem.Q[warp], smem.ring[position.stage]);  // S = Q K_jᵀ, (32, Bc)
    release(smem, position);
    softmax(S, j);  // S = S·scale - m, O = O·rescale
    wait_until_full(smem, position);
    accumulate_PV<Element, d, Bc>(registers, S, smem.ring[position.stage]);  // O += exp2(S) V_j, (32, d)
    release(smem, position);
  }
  // END 10.7
  divide_by_l(registers, lse + std::int64_t(head) * sizes.Nq + first_query, sizes.Nq - first_query);
  store_O(registers, smem.Q[warp], O, first_query, head);
}

/// Blocks of 224 queries have K/V tiles of 64 keys for d <= 64, and of 32 keys for d = 128.
template <int d, int Br, int Bc>
constexpr bool is_built = Br == 32 || (d <= 64) == (Bc == 64);

template <int d, int Br, int Bc, int warps>
void start(const ForwardCall<Element>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t q_tiles = (Nq + Br - 1) / Br, heads = B * H;
  const dim3 grid = workbook::cuda::grid_of(q_tiles * heads, "B·H·⌈Nq/Br⌉");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps>, grid, dim3(32 * (warps + 1)),
                         sizeof(Shared<Element, d, Bc, warps>), tile_map<Element, 32, d>(call.Q, heads, Nq),
                         tile_map<Element, Bc, d>(call.K, heads, Nk), tile_map<Element, Bc, d>(call.V, heads, Nk),
                         tile_map<Element, 32, d>(call.O, heads, Nq), call.lse, Sizes{int(Nq), int(Nk), call.causal()},
                         q_tiles, call.scale * log2_e);
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void copy_engine(const ForwardCall<E>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) {
    if constexpr (is_built<d, t.Br, t.Bc>) return start<d, t.Br, t.Bc, t.warps>(call);
    throw std::invalid_argument("these tiles are not built for d = " + std::to_string(d));
  });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles, [](auto d, auto t) -> std::size_t {
    return is_built<d, t.Br, t.Bc> ? sizeof(Shared<E, d, t.Bc, t.warps>) : 0;
  });
}
template void copy_engine(const ForwardCall<Element>&, const Tiles&);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch10
