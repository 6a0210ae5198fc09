// Chapter 3, tiled WMMA: the phases of the kernel, the kernel itself, and its launch.
//
// Source: Dao et al. 2022, section 3.1, Algorithm 1; Dao 2023, sections 3.2 and 3.3 (what this partition costs).
// Test it: ./workbook test 3
#include "tiled_wmma.hpp"

#include <cstdint>

#include "common/cuda/dispatch.hpp"
#include "layout.hpp"

namespace ch03 {
namespace {

using namespace nvcuda;
using workbook::cuda::dynamic_shared, workbook::cuda::exp2_ftz;

/// Loads `rows` rows of d elements from device memory into a tile (tile_rows, d) in shared memory, and fills the rest
/// of the tile with zeros.
template <int warps, int tile_rows, int columns>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][columns], const Element* __restrict__ source,
                                          int rows) {
  constexpr int d = columns - pad_half, threads_per_row = d / chunk, rows_per_pass = threads<warps> / threads_per_row;
  // TODO(3.6) Each thread copies 16 bytes per iteration; adjacent threads copy adjacent bytes. Fill missing rows with
  // zeros: a NaN in V would survive a weight of zero, because 0 · NaN is NaN (about 7 lines).
  // BEGIN 3.6
  WORKBOOK_TODO(3.6);
  // END 3.6
}

/// S = Q Kᵀ, not yet scaled, for this warp's keys of the tile: (Br, d), (Bc / warps, d) -> (Br, Bc / warps).
template <int d, int Br, int Bc, int warps>
__device__ void multiply_QK(Shared<d, Br, Bc, warps>& smem) {
  const int first_key = threadIdx.x / lanes * (Bc / warps);  // this warp's first key in the tile
  // TODO(3.7) For each group of 16 keys of this warp: clear Br/16 accumulators, accumulate over d in steps of 16, store
  // to smem.S. A row of K is a column of Kᵀ (about 17 lines).
  // BEGIN 3.7
  WORKBOOK_TODO(3.7);
  // END 3.7
}

/// Reads this warp's scores, times scale, into S, with -inf for missing keys; S[i] is row lane + 32·i. Stores each
/// row's maximum over these keys to smem.m_part (warps, Br). Units of log2: scale includes log2(e).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void row_maxima(Shared<d, Br, Bc, warps>& smem, float (&S)[Br / lanes][Bc / warps], int keys,
                                           float scale) {
  constexpr int width = Bc / warps;
  const int warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, first_key = warp * width;
  // TODO(3.8) For each of this lane's rows: read the scores of this warp's keys into S, times scale; set the scores of
  // keys from `keys` on to -inf; store the maximum to smem.m_part[warp] (about 14 lines).
  // BEGIN 3.8
  WORKBOOK_TODO(3.8);
  // END 3.8
}

/// Computes every row's new m from the maxima of all warps. Stores P = exp2(S - m) as fp16 to smem.P, this warp's sums
/// of P to smem.l_part (warps, Br), and the rescaling factor of l and O, 2^(old m - new m), to smem.rescale (Br).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void exponentiate(Shared<d, Br, Bc, warps>& smem, float (&S)[Br / lanes][Bc / warps],
                                             RowState<Br>& state) {
  constexpr int width = Bc / warps;
  const int warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, first_key = warp * width;
  // TODO(3.9) For each of this lane's rows: compute the new m from the old m and every warp's maximum; in warp 0, store
  // the rescaling factor; for this warp's keys, compute P and its sum before rounding (about 17 lines).
  // BEGIN 3.9
  WORKBOOK_TODO(3.9);
  // END 3.9
}

/// O = rescale·O + P V and l = rescale·l + rowsum(P). Each warp multiplies its columns of P by its rows of V:
/// (Br, Bc / warps), (Bc / warps, d) -> (Br, d). The warps' results are summed through shared memory, after a barrier.
template <int d, int Br, int Bc, int warps>
__device__ void accumulate_PV(Shared<d, Br, Bc, warps>& smem, OutputShare<d, Br, warps>& O, RowState<Br>& state) {
  constexpr int width = Bc / warps;
  const int warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, first_key = warp * width;
  // TODO(3.10) Store this warp's P V to smem.O_part[warp]. After a barrier, each thread rescales its elements of O and
  // adds those of every warp; each lane does the same with the l of its rows (about 28 lines).
  // BEGIN 3.10
  WORKBOOK_TODO(3.10);
  // END 3.10
  note_rows(O, state);
}

/// Writes the tile's O / l as fp16 and its LSE, m + log l, to device memory: the first `rows` rows of (Br, d) and (Br).
template <int d, int Br, int Bc, int warps>
__device__ void write_output(Shared<d, Br, Bc, warps>& smem, const OutputShare<d, Br, warps>& O,
                             const RowState<Br>& state, Element* __restrict__ O_tile, float* __restrict__ lse_tile,
                             int rows) {
  constexpr int threads_per_row = d / chunk, rows_per_pass = threads<warps> / threads_per_row;
  // TODO(3.11) Store O to smem.O_part[0] and l to smem.l, so that a thread can read eight adjacent elements of O:
  // divide by l, round, store 16 bytes. The LSE is a natural logarithm (about 19 lines).
  // BEGIN 3.11
  WORKBOOK_TODO(3.11);
  // END 3.11
}

/// One thread block per head: a loop over the Q tiles, and in it a loop over all K/V tiles. scale includes log2(e).
template <int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(threads<warps>, 1) attention(const Element* __restrict__ Q,  // (B·H, Nq, d)
                                                               const Element* __restrict__ K,  // (B·H, Nk, d)
                                                               const Element* __restrict__ V,  // (B·H, Nk, d)
                                                               Element* __restrict__ O,        // (B·H, Nq, d)
                                                               float* __restrict__ lse,        // (B·H, Nq)
                                                               std::int64_t Nq, std::int64_t Nk, float scale) {
  auto& smem = dynamic_shared<Shared<d, Br, Bc, warps>>();
  const std::int64_t head = blockIdx.x;
  Q += head * Nq * d, K += head * Nk * d, V += head * Nk * d, O += head * Nq * d, lse += head * Nq;
  for (std::int64_t first_query = 0; first_query < Nq; first_query += Br) {
    const int queries = min(std::int64_t(Br), Nq - first_query);  // the last tile may be short
    load_tile<warps>(smem.Q, Q + first_query * d, queries);       // (Br, d)
    OutputShare<d, Br, warps> O_share = {};                       // zeros
    RowState<Br> state = {{}, {}, first_query};
    for (int i = 0; i < Br / lanes; ++i) state.m[i] = -INFINITY, state.l[i] = 0;
    float S[Br / lanes][Bc / warps];  // this lane's scores of one tile
    // TODO(3.12) Write the loop over the K/V tiles; the last one may be short. For each: load K and V; compute S, the
    // maxima, P and O. Put a barrier between a phase that writes and one that reads other warps' results, and say what
    // it protects. accumulate_PV contains one, after which K and V may be overwritten (about 11 lines).
    // BEGIN 3.12
    WORKBOOK_TODO(3.12);
    // END 3.12
    write_output(smem, O_share, state, O + first_query * d, lse + first_query, queries);  // O / l, m + log l
  }
}

}  // namespace

void tiled_wmma(const ForwardCall<Element>& call, const Tiles& tiles) {
  const dim3 grid = workbook::cuda::grid_of(call.shape.B * call.shape.H, "B·H");
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) {
    if constexpr (fits<d, t.Br, t.Bc, t.warps>)
      workbook::cuda::launch(attention<d, t.Br, t.Bc, t.warps>, grid, dim3(threads<t.warps>),
                             sizeof(Shared<d, t.Br, t.Bc, t.warps>), call.Q, call.K, call.V, call.O, call.lse,
                             call.shape.Nq, call.shape.Nk, call.scale * log2_e);
  });
}

}  // namespace ch03
