// Chapter 4, kernel 1: the plain Q split. Each warp has 32 rows of Q and loops over all keys.
//
// What changes: in Part 2 of chapter 3, the warps split the keys of a tile and combined their results in every tile.
// Here the warps share only K and V, and O stays in registers until the end.
// What it costs: each warp reads all of K and V from shared memory, and all warps wait while a tile is loaded.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3.
// Test it: ./workbook test 4; trace it: ./workbook trace 4 --set kernel=1
#include "q_split.hpp"

#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch04 {
namespace {

constexpr int step = 32;  // keys per step: a lane keeps the scores of one step in registers

/// A block's shared memory. Each warp uses its own Q and workspace, and all of K and V.
template <int d, int Br, int Bc, int warps>
struct Shared {
  Element Q[warps][warp_rows][d + pad_half], K[Bc][d + pad_half], V[Bc][d + pad_half];
  float row_index[side][side];  // element (i, j) is i
  Workspace<d, step> workspace[warps];
  SHARED_LAYOUT(Shared, (Q, d, d + pad_half), (K, d, d + pad_half), (V, d, d + pad_half), row_index, workspace);
};

/// Loads rows x d elements from device memory into a tile (tile_rows, d) in shared memory. The remaining rows become
/// zeros. `threads` threads load together; the caller is number `thread` of them.
template <int threads, int tile_rows, int columns>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][columns], const Element* __restrict__ source,
                                          int rows, int thread) {
  constexpr int chunks = (columns - pad_half) / 8;  // of 16 bytes, per row
#pragma unroll 2  // at d = 64 hardly a register is free: 24 bytes are spilled already, more unrolling spills more
  for (int i = thread; i < tile_rows * chunks; i += threads) {
    uint4 chunk = {0, 0, 0, 0};
    if (i < rows * chunks) chunk = reinterpret_cast<const uint4*>(source)[i];
    reinterpret_cast<uint4*>(tile[i / chunks])[i % chunks] = chunk;
  }
}

/// The new m of a row, where `largest` is the largest score of the step.
__device__ __forceinline__ float new_maximum(float m, float largest) {
  return fmaxf(m, largest);
}

/// One block per Q tile and head. scale includes log2(e).
template <int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(warp_size* warps, blocks<d, warps>)
    attention(const Element* __restrict__ Q, const Element* __restrict__ K,  // (heads, Nq, d), (heads, Nk, d)
              const Element* __restrict__ V, Element* __restrict__ O,        // (heads, Nk, d), (heads, Nq, d)
              float* __restrict__ lse,                                       // (heads, Nq)
              std::int64_t Nq, std::int64_t Nk, int q_tiles, float scale) {
  auto& smem = dynamic_shared<Shared<d, Br, Bc, warps>>();
  constexpr int threads = warp_size * warps;
  const int thread = threadIdx.x, warp = thread / warp_size, lane = thread % warp_size;
  const auto [head, first_query, rows] = work_of<Br>(blockIdx.x, warp, q_tiles, Nq);
  const std::int64_t first_row = head * Nq + first_query;  // of this warp
  auto& workspace = smem.workspace[warp];
  K += head * Nk * d, V += head * Nk * d;
  const int tiles = (Nk + Bc - 1) / Bc, last_keys = Nk - std::int64_t(tiles - 1) * Bc;  // the last tile may be short
  const auto keys_of = [&](int j) { return j + 1 < tiles ? Bc : last_keys; };

  load_tile<warp_size>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  Fragments<d> fragments;
  prepare<threads>(fragments, smem.row_index, thread);
  __syncwarp();  // Q is visible to all lanes
  load_Q(fragments, smem.Q[warp]);
  RowState row;
  for (int j = 0; j < tiles; ++j) {
    const int keys = keys_of(j);
    load_tile<threads>(smem.K, K, keys, thread);  // (Bc, d)
    load_tile<threads>(smem.V, V, keys, thread);  // (Bc, d)
    K += Bc * d, V += Bc * d;                     // to tile j + 1
    __syncthreads();                              // K_j and V_j are complete
    for (int first_key = 0; first_key < keys; first_key += step) {
      multiply_QK(workspace, fragments, smem.Q[warp], smem.K, first_key);  // Sᵀ = K Qᵀ, (step, 32)
      const float rescale = online_softmax<new_maximum>(workspace, row, keys - first_key, scale);  // P = exp2(S - m)
      rescale_O(fragments, smem.row_index, rescale);                                               // O = O·rescale
      accumulate_PV(workspace, fragments, smem.V, first_key);                                      // O += P V, (32, d)
    }
    __syncthreads();  // all warps have read K_j and V_j: the next tiles may overwrite them
  }
  write_output(workspace, fragments, row, O + first_row * d, lse + first_row, rows);  // O / l, m + log l
}

template <int d, int Br, int Bc, int warps>
void start(const ForwardCall<Element>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t q_tiles = (Nq + Br - 1) / Br;
  const dim3 grid = workbook::cuda::grid_of(q_tiles * B * H, "B·H·⌈Nq/Br⌉");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps>, grid, dim3(warp_size * warps), sizeof(Shared<d, Br, Bc, warps>),
                         call.Q, call.K, call.V, call.O, call.lse, Nq, Nk, q_tiles, call.scale * log2_e);
}

}  // namespace

void plain_split(const ForwardCall<Element>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built_for_1_and_2>(call.shape.d, tiles,
                                                [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call); });
}

std::size_t plain_split_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built_for_1_and_2>(
      d, tiles, [](auto d, auto t) { return sizeof(Shared<d, t.Br, t.Bc, t.warps>); });
}

}  // namespace ch04
