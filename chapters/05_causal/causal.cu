// Chapter 5, the causal mask: the kernel, and the launch. The phases are in phases.hpp.
//
// What changes: a Q tile loops over the K/V tiles up to the diagonal only, the mask is applied only to the tiles that
// the diagonal crosses, and the longest blocks start first.
// What it costs: about half of the work in the tiles that the diagonal crosses is wasted.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1 ("Causal masking").
// Test it: ./workbook test 5; trace it: ./workbook trace 5 --causal
#include "causal.hpp"

#include "common/cuda/dispatch.hpp"
#include "phases.hpp"

namespace ch05 {
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

/// One block per Q tile and head. scale includes log2(e).
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
  auto& workspace = smem.workspace[warp];
  K += head * sizes.Nk * d, V += head * sizes.Nk * d;
  const int tiles = kv_tiles<Br, Bc>(std::int64_t(q_tile) * Br, sizes);
  [[maybe_unused]] const auto copy = [&](Element(&target)[buffers<d>][Bc][d + pad_half], const Element* source, int j) {
    copy_tile<threads>(target[j % buffers<d>], source, min(std::int64_t(Bc), sizes.Nk - std::int64_t(j) * Bc), thread);
  };
  // TODO(5.5) The kernel's body, in the order of chapter 4's kernel 3, for both schedules (about 42 lines):
  //   issue the copies of Q and, if tiles > 0, of K_0; with two buffers, of V_0 too; commit
  //   prepare; wait for Q, which the lanes of the warp copy together; load_Q
  //   two buffers: for each tile j: wait, barrier, copy K_{j+1} and V_{j+1}, if they exist; then S, P and O in steps
  //   one buffer: for each tile j: wait, barrier, copy V_j; S and P; wait, barrier, copy K_{j+1}, if it exists; then O
  //   write O / l and the LSE
  // BEGIN 5.5
  WORKBOOK_TODO(5.5);
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

// E is Element, the type that this file is compiled for.
template <class E>
void causal(const ForwardCall<E>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call); });
}
template <class E>
std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<d, t.Br, t.Bc, t.warps>); });
}
template void causal(const ForwardCall<Element>&, const Tiles&);
template std::size_t shared_bytes<Element>(int, const Tiles&);

}  // namespace ch05
