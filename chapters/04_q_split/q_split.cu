// Chapter 4, kernel 3: conditional rescaling, and a different schedule for d = 128. This is the chapter's kernel.
//
// What changes: m changes only if a score exceeds it by more than `slack`, so O is rarely rescaled. At d = 128 there is
// one buffer for K and one for V: V_j is copied during S = QKᵀ, K_j+1 during PV. Two blocks per SM then fit.
// What it costs: P is up to 2^slack, and d = 128 has two barriers per tile.
//
// Source: Zadouri et al. 2026 (FlashAttention-4), conditional rescaling; Dao 2023 (FlashAttention-2), section 3.3.
// Test it: ./workbook test 4; trace it: ./workbook trace 4
#include "q_split.hpp"

#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch04 {
namespace {

// Buffers for tiles of K, and for tiles of V. With two of each at d = 128, only one block per SM would fit.
template <int d>
constexpr int buffers = d <= 64 ? 2 : 1;
// Keys per step. With one buffer for K, a step is the whole tile, so that K may be overwritten after QKᵀ.
template <int d, int Bc>
constexpr int step = buffers<d> == 2 ? 32 : Bc;

/// A block's shared memory. Each warp uses its own Q and workspace, and all of K and V.
template <int d, int Br, int Bc, int warps>
struct Shared {
  Element Q[warps][warp_rows][d + pad_half], K[buffers<d>][Bc][d + pad_half], V[buffers<d>][Bc][d + pad_half];
  float row_index[side][side];  // element (i, j) is i
  Workspace<d, step<d, Bc>> workspace[warps];
  SHARED_LAYOUT(Shared, (Q, d, d + pad_half), (K, d, d + pad_half), (V, d, d + pad_half), row_index, workspace);
};

/// The new m of a row, where `largest` is the largest score of the step. m changes only by more than slack.
__device__ __forceinline__ float new_maximum(float m, float largest) {
  // TODO(4.8) m is `largest` if that exceeds m by more than slack; otherwise m is unchanged (about 1 line).
  // BEGIN 4.8
  WORKBOOK_TODO(4.8);
  // END 4.8
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
  const auto copy = [&](Element(&target)[buffers<d>][Bc][d + pad_half], const Element* source, int j) {
    copy_tile<threads>(target[j % buffers<d>], source, keys_of(j), thread);
  };
  copy_tile<warp_size>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  copy(smem.K, K, 0);                                                 // (Bc, d)
  if constexpr (buffers<d> == 2) copy(smem.V, V, 0);                  // (Bc, d)
  __pipeline_commit();
  Fragments<d> fragments;
  prepare<threads>(fragments, smem.row_index, thread);
  __pipeline_wait_prior(0);
  __syncwarp();  // Q is visible to all lanes
  load_Q(fragments, smem.Q[warp]);
  RowState row;
  if constexpr (buffers<d> == 2) {
    for (int j = 0; j < tiles; ++j) {
      __pipeline_wait_prior(0);
      __syncthreads();           // K_j and V_j are complete; the tiles that are overwritten next have been read
      K += Bc * d, V += Bc * d;  // to tile j + 1
      if (j + 1 < tiles) copy(smem.K, K, j + 1), copy(smem.V, V, j + 1);
      __pipeline_commit();
      const int keys = keys_of(j);
      for (int first_key = 0; first_key < keys; first_key += step<d, Bc>) {
        multiply_QK(workspace, fragments, smem.Q[warp], smem.K[j % 2], first_key);
        const float rescale = online_softmax<new_maximum>(workspace, row, keys - first_key, scale);
        rescale_O(fragments, smem.row_index, rescale);
        accumulate_PV(workspace, fragments, smem.V[j % 2], first_key);
      }
    }
  } else {
    // TODO(4.9) The loop with one buffer for K and one for V; a step is the whole tile. V_j is copied while S and P are
    // computed, K_{j+1} while O += P V is. A wait covers only the calling thread's copies; the barrier after it covers
    // the copies of every thread. A barrier also separates the last read of a buffer from the next copy into it. Two
    // waits and two barriers per tile suffice. The copy of K_0 is in flight; K and V point to tile 0 (about 14 lines).
    // BEGIN 4.9
    WORKBOOK_TODO(4.9);
    // END 4.9
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

void q_split(const ForwardCall<Element>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call); });
}

std::size_t q_split_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<d, t.Br, t.Bc, t.warps>); });
}

}  // namespace ch04
