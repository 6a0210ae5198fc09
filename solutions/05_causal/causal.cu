// Chapter 5, causal: the kernel, and the launch. The phases are in phases.hpp.
//
// What changes: a tile of queries goes through the tiles of keys up to the diagonal and no further, only tiles that the
// diagonal crosses are masked, and the longest blocks start first.
// What it costs: in the tiles that are crossed, half of the work is for nothing.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1 ("Causal masking").
// Test it: ./workbook test 5; look at it: ./workbook trace 5 --causal
#include "causal.hpp"

#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch05 {
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

/// One block per tile of queries and head. scale holds log2(e).
template <int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(warp_size* warps, blocks<d, warps>)
    attention(const Element* __restrict__ Q, const Element* __restrict__ K,  // (heads, Nq, d), (heads, Nk, d)
              const Element* __restrict__ V, Element* __restrict__ O,        // (heads, Nk, d), (heads, Nq, d)
              float* __restrict__ lse,                                       // (heads, Nq)
              Sizes sizes, int heads, int q_tiles, float scale) {
  auto& smem = dynamic_shared<Shared<d, Br, Bc, warps>>();
  constexpr int threads = warp_size * warps;
  const int thread = threadIdx.x, warp = thread / warp_size, lane = thread % warp_size;
  const auto [head, q_tile] = work_of(blockIdx.x, heads, q_tiles);
  const std::int64_t first_query = std::int64_t(q_tile) * Br + warp_rows * warp;  // of this warp
  const std::int64_t first_row = head * sizes.Nq + first_query, query = first_query + lane;
  const int rows = min(std::int64_t(warp_rows), sizes.Nq - first_query);  // none if negative
  auto& own = smem.own[warp];
  K += head * sizes.Nk * d, V += head * sizes.Nk * d;
  const int tiles = kv_tiles<Br, Bc>(std::int64_t(q_tile) * Br, sizes);
  [[maybe_unused]] const auto copy = [&](Element(&places)[copies<d>][Bc][d + pad_half], const Element* source, int j) {
    copy_tile<threads>(places[j % copies<d>], source, min(std::int64_t(Bc), sizes.Nk - std::int64_t(j) * Bc), thread);
  };
  // TODO(5.5) The kernel's body, with the phases and the order of chapter 4's third kernel (about 42 lines):
  //   start the copies of Q and, if the block sees any key, of K_0; with two places of each, of V_0 too
  //   clear O and write row_index; when Q has arrived, keep it
  //   for each tile j: wait until K_j is there for all, with two places V_j too; start the next copy, to the free place
  //     S, P and O, step by step; with one place of each, V_j and K_j+1 arrive in turns
  //   write O / l and the LSE
  // BEGIN 5.5
  copy_tile<warp_size>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  if (tiles > 0) copy(smem.K, K, 0);                                  // (Bc, d)
  if (tiles > 0 && copies<d> == 2) copy(smem.V, V, 0);                // (Bc, d)
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
      for (int first_key = 0; first_key < Bc; first_key += step<d, Bc>) {
        multiply_QK(own, fragments, smem.Q[warp], smem.K[j % 2], first_key);
        const float rescale = online_softmax(own, row, query, std::int64_t(j) * Bc + first_key, j, sizes, scale);
        rescale_O(fragments, smem.row_index, rescale);
        accumulate_PV(own, fragments, smem.V[j % 2], first_key);
      }
    }
  } else {
    for (int j = 0; j < tiles; ++j) {
      __pipeline_wait_prior(0);
      __syncthreads();  // K_j is there; nobody reads V_j-1 any more
      copy(smem.V, V, j);
      __pipeline_commit();
      multiply_QK(own, fragments, smem.Q[warp], smem.K[0], 0);
      rescale_O(fragments, smem.row_index, online_softmax(own, row, query, std::int64_t(j) * Bc, j, sizes, scale));
      __pipeline_wait_prior(0);
      __syncthreads();           // V_j is there; nobody reads K_j any more
      K += Bc * d, V += Bc * d;  // to tile j + 1
      if (j + 1 < tiles) copy(smem.K, K, j + 1);
      __pipeline_commit();
      accumulate_PV(own, fragments, smem.V[0], 0);
    }
  }
  write_output(own, fragments, row, O + first_row * d, lse + first_row, rows);  // O / l, m + log l
  // END 5.5
}

template <int d, int Br, int Bc, int warps>
void start(const ForwardCall<Element>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t q_tiles = (Nq + Br - 1) / Br;
  const dim3 grid = workbook::cuda::grid_of(q_tiles * B * H, "B·H·⌈Nq/Br⌉");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps>, grid, dim3(warp_size * warps), sizeof(Shared<d, Br, Bc, warps>),
                         call.Q, call.K, call.V, call.O, call.lse, Sizes{Nq, Nk, call.causal()}, int(B * H), q_tiles,
                         call.scale * log2_e);
}

}  // namespace

// E is the element type that this file is compiled for.
template <class E>
void causal(const ForwardCall<E>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call); });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<d, t.Br, t.Bc, t.warps>); });
}
template <class E>
int keys_per_step(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles, [](auto d, auto t) { return step<d, t.Bc>; });
}
template void causal(const ForwardCall<Element>&, const Tiles&);
template std::size_t shared_bytes<Element>(int, const Tiles&);
template int keys_per_step<Element>(int, const Tiles&);

}  // namespace ch05
