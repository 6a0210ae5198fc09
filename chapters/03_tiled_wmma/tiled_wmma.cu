// Chapter 3, tiled WMMA: the phases of the kernel, the kernel as their sequence, and the launch.
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

/// rows x d elements from device memory into a tile of (tile_rows, d) in shared memory; the rest of the tile is zeros.
template <int warps, int tile_rows, int columns>
__device__ __forceinline__ void load_tile(Element (&tile)[tile_rows][columns], const Element* __restrict__ source,
                                          int rows) {
  constexpr int d = columns - pad_half, threads_per_row = d / chunk, rows_at_once = threads<warps> / threads_per_row;
  // TODO(3.6) Copy 16 bytes a thread and step, neighbouring threads neighbouring bytes. Rows that do not exist become
  // zeros: garbage in V would survive a weight of zero, for 0 · NaN is NaN (about 7 lines).
  // BEGIN 3.6
  WORKBOOK_TODO(3.6);
  // END 3.6
}

/// S = Q Kᵀ, not yet scaled, for this warp's keys of the tile: (Br, d), (Bc / warps, d) -> (Br, Bc / warps).
template <int d, int Br, int Bc, int warps>
__device__ void multiply_QK(Shared<d, Br, Bc, warps>& smem) {
  const int first_key = threadIdx.x / lanes * (Bc / warps);  // of this warp's, in the tile
  // TODO(3.7) For every 16 keys of this warp: Br/16 accumulators, summed over d in steps of 16, stored to smem.S. A row
  // of K is a column of Kᵀ (about 17 lines).
  // BEGIN 3.7
  WORKBOOK_TODO(3.7);
  // END 3.7
}

/// S·scale of this warp's keys into registers, -inf for keys that do not exist, and each row's maximum over them into
/// smem.m_part (warps, Br). S[i] (Bc / warps) is row lane + 32·i. In units of log2: scale holds log2(e).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void row_maxima(Shared<d, Br, Bc, warps>& smem, float (&S)[Br / lanes][Bc / warps], int keys,
                                           float scale) {
  constexpr int width = Bc / warps;
  const int warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, first_key = warp * width;
  // TODO(3.8) For each of this lane's rows: the scores of this warp's keys, times scale, into S; those of keys from
  // `keys` on become -inf; their maximum goes into smem.m_part[warp] (about 14 lines).
  // BEGIN 3.8
  WORKBOOK_TODO(3.8);
  // END 3.8
}

/// From the maxima of all warps the new m of every row. P (Br, Bc / warps) = exp2(S - m) as fp16 into smem.P, this
/// warp's sums of P into smem.l_part (warps, Br), and 2^(old m - new m), which l and O have still to be multiplied by,
/// into smem.rescale (Br). S as row_maxima left it.
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void exponentiate(Shared<d, Br, Bc, warps>& smem, float (&S)[Br / lanes][Bc / warps],
                                             RowState<Br>& state) {
  constexpr int width = Bc / warps;
  const int warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, first_key = warp * width;
  // TODO(3.9) For each of this lane's rows: the new m from the old one and every warp's maximum; from warp 0, the
  // factor for what was accumulated; P and its sum, before rounding, for this warp's keys (about 17 lines).
  // BEGIN 3.9
  WORKBOOK_TODO(3.9);
  // END 3.9
}

/// O = rescale·O + P V and l = rescale·l + the sums of P. Each warp multiplies its columns of P with its rows of V,
/// (Br, Bc / warps), (Bc / warps, d) -> (Br, d). The sum over the warps goes through shared memory, behind a barrier.
template <int d, int Br, int Bc, int warps>
__device__ void accumulate_PV(Shared<d, Br, Bc, warps>& smem, OutputShare<d, Br, warps>& O, RowState<Br>& state) {
  constexpr int width = Bc / warps;
  const int warp = threadIdx.x / lanes, lane = threadIdx.x % lanes, first_key = warp * width;
  // TODO(3.10) This warp's product into smem.O_part[warp]. When all are there, each thread rescales its share of O and
  // adds what every warp has for it, and each lane does the same for the l of its rows (about 28 lines).
  // BEGIN 3.10
  WORKBOOK_TODO(3.10);
  // END 3.10
  note_rows(O, state);
}

/// The tile's O / l as fp16 and its LSE, m + log l, to device memory: the first `rows` rows of (Br, d) and of (Br).
template <int d, int Br, int Bc, int warps>
__device__ void write_output(Shared<d, Br, Bc, warps>& smem, const OutputShare<d, Br, warps>& O,
                             const RowState<Br>& state, Element* __restrict__ O_tile, float* __restrict__ lse_tile,
                             int rows) {
  constexpr int threads_per_row = d / chunk, rows_at_once = threads<warps> / threads_per_row;
  // TODO(3.11) Put O into smem.O_part[0] and l into smem.l, so that a thread can take eight neighbours of O: divide by
  // l, round, one 16-byte store. The LSE is a natural logarithm (about 19 lines).
  // BEGIN 3.11
  WORKBOOK_TODO(3.11);
  // END 3.11
}

/// One block per head. It walks the tiles of queries, and for each of them all tiles of keys. scale holds log2(e).
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
    // TODO(3.12) Write the loop over the tiles of keys, of which the last may be short. For each tile: K and V into
    // shared memory; S; the maxima; P; O. A barrier stands between a phase that writes and one that reads what other
    // warps have written: after the tiles and after the maxima. accumulate_PV has its own barrier behind the products,
    // after which K and V may be overwritten. Say at each barrier what it protects (about 11 lines).
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
