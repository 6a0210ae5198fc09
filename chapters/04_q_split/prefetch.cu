// Chapter 4, kernel 2: copies overlapped with computation.
//
// What changes: cp.async copies tile j + 1 into a second buffer while the warps compute with tile j. One barrier per
// tile suffices: after it, tile j is complete, and all warps have read tile j - 1.
// What it costs: shared memory for two tiles of K and two of V. At d = 128 only one block per SM fits.
//
// Source: CUDA C++ Programming Guide, "Asynchronous Data Copies".
// Test it: ./workbook test 4; trace it: ./workbook trace 4 --set kernel=2
#include "q_split.hpp"

#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch04 {
namespace {

constexpr int step = 32;  // keys per step: a lane keeps the scores of one step in registers

/// A block's shared memory. Each warp uses its own Q and workspace, and all of K and V.
template <int d, int Br, int Bc, int warps>
struct Shared {
  Element Q[warps][warp_rows][d + pad_half], K[2][Bc][d + pad_half], V[2][Bc][d + pad_half];
  float row_index[side][side];  // element (i, j) is i
  Workspace<d, step> workspace[warps];
  SHARED_LAYOUT(Shared, (Q, d, d + pad_half), (K, d, d + pad_half), (V, d, d + pad_half), row_index, workspace);
};

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
  const auto copy = [&](Element(&target)[2][Bc][d + pad_half], const Element* source, int j) {
    copy_tile<threads>(target[j % 2], source, keys_of(j), thread);
  };
  copy_tile<warp_size>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  copy(smem.K, K, 0);                                                 // (Bc, d)
  copy(smem.V, V, 0);                                                 // (Bc, d)
  __pipeline_commit();
  Fragments<d> fragments;
  prepare<threads>(fragments, smem.row_index, thread);
  __pipeline_wait_prior(0);
  __syncwarp();  // Q is visible to all lanes
  load_Q(fragments, smem.Q[warp]);
  RowState row;
  for (int j = 0; j < tiles; ++j) {
    __pipeline_wait_prior(0);
    __syncthreads();           // K_j and V_j are complete; the tiles that are overwritten next have been read
    K += Bc * d, V += Bc * d;  // to tile j + 1
    if (j + 1 < tiles) copy(smem.K, K, j + 1), copy(smem.V, V, j + 1);
    __pipeline_commit();
    const int keys = keys_of(j);
    for (int first_key = 0; first_key < keys; first_key += step) {
      multiply_QK(workspace, fragments, smem.Q[warp], smem.K[j % 2], first_key);  // Sᵀ = K Qᵀ, (step, 32)
      const float rescale = online_softmax<new_maximum>(workspace, row, keys - first_key, scale);  // P = exp2(S - m)
      rescale_O(fragments, smem.row_index, rescale);                                               // O = O·rescale
      accumulate_PV(workspace, fragments, smem.V[j % 2], first_key);                               // O += P V, (32, d)
    }
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

void prefetch(const ForwardCall<Element>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built_for_1_and_2>(call.shape.d, tiles,
                                                [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call); });
}

std::size_t prefetch_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built_for_1_and_2>(
      d, tiles, [](auto d, auto t) { return sizeof(Shared<d, t.Br, t.Bc, t.warps>); });
}

}  // namespace ch04
