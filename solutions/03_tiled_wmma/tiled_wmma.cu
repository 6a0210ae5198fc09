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
  const int first_row = threadIdx.x / threads_per_row, chunk_index = threadIdx.x % threads_per_row;
#pragma unroll
  for (int i = 0; i < tile_rows; i += rows_per_pass) {
    const int row = first_row + i;
    uint4 vector = {0, 0, 0, 0};
    if (row < rows) vector = reinterpret_cast<const uint4*>(source)[row * threads_per_row + chunk_index];
    reinterpret_cast<uint4*>(tile[row])[chunk_index] = vector;
  }
  // END 3.6
}

/// S = Q Kᵀ, not yet scaled, for this warp's keys of the tile: (Br, d), (Bc / warps, d) -> (Br, Bc / warps).
template <int d, int Br, int Bc, int warps>
__device__ void multiply_QK(Shared<d, Br, Bc, warps>& smem) {
  const int first_key = threadIdx.x / lanes * (Bc / warps);  // this warp's first key in the tile
  // TODO(3.7) For each group of 16 keys of this warp: clear Br/16 accumulators, accumulate over d in steps of 16, store
  // to smem.S. A row of K is a column of Kᵀ (about 17 lines).
  // BEGIN 3.7
#pragma unroll
  for (int j = first_key; j < first_key + Bc / warps; j += 16) {
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> S[Br / 16];
    for (auto& tile : S) wmma::fill_fragment(tile, 0.0f);
#pragma unroll
    for (int c = 0; c < d; c += 16) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::col_major> K;
      wmma::load_matrix_sync(K, &smem.K[j][c], d + pad_half);
#pragma unroll
      for (int i = 0; i < Br / 16; ++i) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major> Q;
        wmma::load_matrix_sync(Q, &smem.Q[16 * i][c], d + pad_half);
        wmma::mma_sync(S[i], Q, K, S[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < Br / 16; ++i)
      wmma::store_matrix_sync(&smem.S[16 * i][j], S[i], Bc + pad_float, wmma::mem_row_major);
  }
  __syncwarp();  // the lanes of this warp read rows that its other lanes have stored
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
  for (int i = 0; i < Br / lanes; ++i) {
    const int row = lane + lanes * i;
    for (int j = 0; j < width; j += 4) {
      const float4 scores = float4_at(smem.S[row][first_key + j]);
      S[i][j] = scores.x * scale, S[i][j + 1] = scores.y * scale;
      S[i][j + 2] = scores.z * scale, S[i][j + 3] = scores.w * scale;
    }
    if (keys < Bc) {  // a row of zeros in K gives a score of 0, not -inf
      for (int j = 0; j < width; ++j) S[i][j] = first_key + j < keys ? S[i][j] : -INFINITY;
    }
    float m_warp = -INFINITY;
    for (int j = 0; j < width; ++j) m_warp = fmaxf(m_warp, S[i][j]);
    smem.m_part[warp][row] = m_warp;
  }
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
  for (int i = 0; i < Br / lanes; ++i) {
    const int row = lane + lanes * i;
    float m_new = state.m[i];
    for (int w = 0; w < warps; ++w) m_new = fmaxf(m_new, smem.m_part[w][row]);
    const float m_safe = m_new == -INFINITY ? 0 : m_new;
    if (warp == 0) smem.rescale[row] = exp2_ftz(state.m[i] - m_safe);
    state.m[i] = m_new;
    float l_warp = 0;
    for (int j = 0; j < width; ++j) {
      S[i][j] = exp2_ftz(S[i][j] - m_safe);
      l_warp += S[i][j];
    }
    for (int j = 0; j < width; j += chunk) store_rounded(&S[i][j], smem.P[row], (first_key + j) / chunk);
    smem.l_part[warp][row] = l_warp;
  }
  __syncwarp();  // this warp loads fragments of P that its other lanes have stored
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
  wmma::fragment<wmma::matrix_a, 16, 16, 16, Element, wmma::row_major> P[Br / 16][width / 16];
#pragma unroll
  for (int i = 0; i < Br / 16; ++i)
    for (int j = 0; j < width / 16; ++j)
      wmma::load_matrix_sync(P[i][j], &smem.P[16 * i][first_key + 16 * j], Bc + pad_half);
#pragma unroll
  for (int c = 0; c < d; c += 16) {
    wmma::fragment<wmma::matrix_b, 16, 16, 16, Element, wmma::row_major> V[width / 16];
    for (int j = 0; j < width / 16; ++j) wmma::load_matrix_sync(V[j], &smem.V[first_key + 16 * j][c], d + pad_half);
#pragma unroll
    for (int i = 0; i < Br / 16; ++i) {
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> PV;
      wmma::fill_fragment(PV, 0.0f);
      for (int j = 0; j < width / 16; ++j) wmma::mma_sync(PV, P[i][j], V[j], PV);
      wmma::store_matrix_sync(&smem.O_part[warp][16 * i][c], PV, d + pad_accumulator, wmma::mem_row_major);
    }
  }
  __syncthreads();  // partial O and l and the factors are stored; K and V may be overwritten
#pragma unroll
  for (int i = 0; i < O.count; ++i) {
    const int row = O.row(i);
    float4 PV = {0, 0, 0, 0};
    for (int w = 0; w < warps; ++w) PV = multiply_add(1, float4_at(smem.O_part[w][row][O.column()]), PV);
    O.values[i] = multiply_add(smem.rescale[row], O.values[i], PV);
  }
  for (int i = 0; i < Br / lanes; ++i) {
    state.l[i] *= smem.rescale[lane + lanes * i];
    for (int w = 0; w < warps; ++w) state.l[i] += smem.l_part[w][lane + lanes * i];
  }
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
#pragma unroll
  for (int i = 0; i < O.count; ++i) float4_at(smem.O_part[0][O.row(i)][O.column()]) = O.values[i];
  if (threadIdx.x < lanes) {
    for (int i = 0; i < Br / lanes; ++i) {
      const int row = threadIdx.x + lanes * i;
      smem.l[row] = state.l[i];
      if (row < rows) lse_tile[row] = (state.m[i] + log2f(state.l[i])) * ln_2;
    }
  }
  __syncthreads();  // O and l of all rows are stored
  const int first_row = threadIdx.x / threads_per_row, chunk_index = threadIdx.x % threads_per_row;
#pragma unroll
  for (int i = 0; i < Br; i += rows_per_pass) {
    const int row = first_row + i;
    if (row >= rows) break;
    const float l = smem.l[row], factor = l == 0 ? 0 : 1 / l;
    const float4 a = float4_at(smem.O_part[0][row][chunk * chunk_index]),
                 b = float4_at(smem.O_part[0][row][chunk * chunk_index + 4]);
    const float values[] = {a.x * factor, a.y * factor, a.z * factor, a.w * factor,
                            b.x * factor, b.y * factor, b.z * factor, b.w * factor};
    store_rounded(values, O_tile, row * threads_per_row + chunk_index);
  }
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
    for (std::int64_t first_key = 0; first_key < Nk; first_key += Bc) {
      const int keys = min(std::int64_t(Bc), Nk - first_key);
      load_tile<warps>(smem.K, K + first_key * d, keys);  // (Bc, d)
      load_tile<warps>(smem.V, V + first_key * d, keys);  // (Bc, d)
      __syncthreads();                                    // Q, K and V are there
      multiply_QK(smem);                                  // S = Q Kᵀ, (Br, Bc / warps) per warp
      row_maxima(smem, S, keys, scale);                   // of this warp's keys
      __syncthreads();                                    // the maxima of all warps are stored
      exponentiate(smem, S, state);                       // P = exp2(S - m), m over all warps
      accumulate_PV(smem, O_share, state);                // O = O·rescale + P V over all warps; one barrier
    }
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
