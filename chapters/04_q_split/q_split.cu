// Chapter 4, kernel 3: m may stay behind, and d = 128 has a schedule of its own. This is the chapter's kernel.
//
// What changes: m moves only if a row exceeds it by more than `slack`, so that O is seldom rescaled. With d = 128 there
// is one tile of K and one of V: V_j is copied during S = QKᵀ, K_j+1 during PV. Two blocks fit a multiprocessor then.
// What it costs: P is up to 2^slack, and with d = 128 there are two barriers a tile.
//
// Source: Zadouri et al. 2026 (FlashAttention-4), conditional rescaling; Dao 2023 (FlashAttention-2), section 3.3.
// Test it: ./workbook test 4; look at it: ./workbook trace 4
#include "q_split.hpp"

#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch04 {
namespace {

// How many tiles of K and of V a block has room for: with d = 128 one of each, or only one block would fit.
template <int d>
constexpr int copies = d <= 64 ? 2 : 1;
// Keys of a tile that a warp takes at a time. With one tile of K, a step is all of it: then K is free for the next.
template <int d, int Bc>
constexpr int step = copies<d> == 2 ? 32 : Bc;

/// What a block keeps in shared memory. Every warp uses its own Q and workspace, and all of K and V.
template <int d, int Br, int Bc, int warps>
struct Shared {
  Element Q[warps][warp_rows][d + pad_half], K[copies<d>][Bc][d + pad_half], V[copies<d>][Bc][d + pad_half];
  float row_index[side][side];  // element (i, j) is i
  Workspace<d, step<d, Bc>> own[warps];
  SHARED_LAYOUT(Shared, (Q, d, d + pad_half), (K, d, d + pad_half), (V, d, d + pad_half), row_index, own);
};

/// The m of a row after scores of which the largest is `largest`: as before, unless that exceeds it by more than slack.
__device__ __forceinline__ float new_maximum(float m, float largest) {
  // TODO(4.8) Softmax is the same for every m; what has to be avoided is that P overflows (about 1 line).
  // BEGIN 4.8
  WORKBOOK_TODO(4.8);
  // END 4.8
}

/// One block per tile of queries and head. scale holds log2(e).
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
  auto& own = smem.own[warp];
  K += head * Nk * d, V += head * Nk * d;
  const int tiles = (Nk + Bc - 1) / Bc, last_keys = Nk - std::int64_t(tiles - 1) * Bc;  // the last tile may be short
  const auto keys_of = [&](int j) { return j + 1 < tiles ? Bc : last_keys; };
  const auto copy = [&](Element(&places)[copies<d>][Bc][d + pad_half], const Element* source, int j) {
    copy_tile<threads>(places[j % copies<d>], source, keys_of(j), thread);
  };
  copy_tile<warp_size>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  copy(smem.K, K, 0);                                                 // (Bc, d)
  if constexpr (copies<d> == 2) copy(smem.V, V, 0);                   // (Bc, d)
  __pipeline_commit();
  Fragments<d> fragments;
  prepare<threads>(fragments, smem.row_index, thread);
  __pipeline_wait_prior(0);
  __syncwarp();  // Q is there for all lanes
  keep_Q(fragments, smem.Q[warp]);
  RowState row;
  if constexpr (copies<d> == 2) {
    for (int j = 0; j < tiles; ++j) {
      __pipeline_wait_prior(0);
      __syncthreads();           // K_j and V_j are there; nobody reads the tiles that the next copies overwrite
      K += Bc * d, V += Bc * d;  // to tile j + 1
      if (j + 1 < tiles) copy(smem.K, K, j + 1), copy(smem.V, V, j + 1);
      __pipeline_commit();
      const int keys = keys_of(j);
      for (int first_key = 0; first_key < keys; first_key += step<d, Bc>) {
        multiply_QK(own, fragments, smem.Q[warp], smem.K[j % 2], first_key);
        const float rescale = online_softmax<new_maximum>(own, row, keys - first_key, scale);
        rescale_O(fragments, smem.row_index, rescale);
        accumulate_PV(own, fragments, smem.V[j % 2], first_key);
      }
    }
  } else {
    // TODO(4.9) The loop where there is one tile of K and one of V, and a step is the whole tile. While S and P are
    // computed, V_j is copied; while O += P V is, K_j+1. A wait is for this thread's own copies, the barrier behind it
    // makes sure of everybody's; and a barrier stands between the last use of a tile and the next copy to its place.
    // Two waits and two barriers a tile are enough. K_0 is on its way; K and V point to tile 0 (about 14 lines).
    // BEGIN 4.9
    WORKBOOK_TODO(4.9);
    // END 4.9
  }
  write_output(own, fragments, row, O + first_row * d, lse + first_row, rows);  // O / l, m + log l
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
int keys_per_step(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles, [](auto d, auto t) { return step<d, t.Bc>; });
}

}  // namespace ch04
