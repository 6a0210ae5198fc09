// Chapter 4, Q split: the phases of the kernel, the kernel as their sequence, and the launch.
//
// Source: Dao 2023 (FlashAttention-2), sections 3.1 to 3.3.
// Test it: ./workbook test 4
#include "q_split.hpp"

#include "common/cuda/dispatch.hpp"
#include "layout.hpp"

namespace ch04 {
namespace {

/// Starts to copy rows x d elements from device memory into a tile of (tile_rows, d) in shared memory; the rest of the
/// tile becomes zeros. The caller is number `thread` of `threads` that do it together.
template <int threads, int tile_rows, int columns>
__device__ __forceinline__ void load_tile(half (&tile)[tile_rows][columns], const half* __restrict__ source, int rows,
                                          int thread) {
  constexpr int d = columns - pad_half;
  // TODO(4.1) As in 3.4, but each 16 bytes by __pipeline_memcpy_async(to, from, 16, zeros): the last `zeros` bytes are
  // not read and become zeros, all 16 in a row that does not exist (about 6 lines).
  // BEGIN 4.1
  const int first_row = thread / (d / 8), chunk = thread % (d / 8);  // a chunk is 16 bytes, eight halves
  const uint4* from = reinterpret_cast<const uint4*>(source) + first_row * (d / 8) + chunk;
#pragma unroll 8  // more addresses at once would not fit the registers
  for (int i = 0; i < tile_rows; i += threads / (d / 8)) {
    const int row = first_row + i;
    __pipeline_memcpy_async(&reinterpret_cast<uint4*>(tile[row])[chunk], from + i * (d / 8), 16, row < rows ? 0 : 16);
  }
  // END 4.1
}

/// Sᵀ = K Qᵀ, unscaled, for this warp's rows and the step's keys from first_key on: (step, d), (32, d) -> (step, 32).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void multiply_QK(Shared<d, Br, Bc, warps>& smem, Fragments<d>& fragments, int copy,
                                            int first_key) {
  // TODO(4.2) As in 3.5, with K on the left and both halves of the warp's 32 rows on the right. Q is in fragments.Q if
  // Q_in_registers<d>; otherwise load it there, each part once (about 18 lines).
  // BEGIN 4.2
  constexpr int keys = step<d, Bc>;
  const int warp = threadIdx.x / 32;
  Accumulator S[keys / 16][2];
  for (auto& tiles : S)
    for (Accumulator& tile : tiles) wmma::fill_fragment(tile, 0.0f);
#pragma unroll
  for (int c = 0; c < d / 16; ++c) {
    for (int i = 0; i < 2 && !Q_in_registers<d>; ++i)
      wmma::load_matrix_sync(fragments.Q[i][c], &smem.Q[warp][16 * i][16 * c], d + pad_half);
#pragma unroll
    for (int j = 0; j < keys / 16; ++j) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> K;
      wmma::load_matrix_sync(K, &smem.K[copy][first_key + 16 * j][16 * c], d + pad_half);
      for (int i = 0; i < 2; ++i) wmma::mma_sync(S[j][i], K, fragments.Q[i][c], S[j][i]);
    }
  }
#pragma unroll
  for (int j = 0; j < keys / 16; ++j)
    for (int i = 0; i < 2; ++i)
      wmma::store_matrix_sync(&smem.own[warp].S[16 * j][16 * i], S[j][i], 32 + pad_product, wmma::mem_row_major);
  __syncwarp();  // each lane reads what others have stored
  // END 4.2
}

/// S -> P (32, step) = exp2(S·scale - m) in this lane's row, 0 for keys from `keys` on, which do not exist; m and l.
/// Returns the factor that brings what has been accumulated to the new m. scale holds log2(e).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ float online_softmax(Shared<d, Br, Bc, warps>& smem, RowState& row, int keys, float scale) {
  // TODO(4.3) Chapter 2's loop over a row: its scores are own.S[0][lane], own.S[1][lane], … m moves only if the scores
  // exceed it by more than `slack`. P takes the place of S, so all lanes must have read (about 22 lines).
  // BEGIN 4.3
  constexpr int width = step<d, Bc>;
  const int lane = threadIdx.x % 32;
  auto& own = smem.own[threadIdx.x / 32];
  float S[width];
  for (int j = 0; j < width; ++j) S[j] = own.S[j][lane];
  if (keys < width) {  // scaled here, because scale might make something else of -inf
    for (int j = 0; j < width; ++j) S[j] = j < keys ? S[j] * scale : -INFINITY;
    scale = 1;
  }
  const float m_step = largest_scaled(S, scale), m_new = m_step > row.m + slack ? m_step : row.m;
  const float m_safe = m_new == -INFINITY ? 0 : m_new, rescale = exp2_ftz(row.m - m_safe);
  float sum = 0;
  for (int j = 0; j < width; ++j) {
    S[j] = exp2_ftz(S[j] * scale - m_safe);  // P from here on
    sum += S[j];
  }
  row.m = m_new;
  row.l = rescale * row.l + sum;
  __syncwarp();  // all lanes have read S: P may overwrite it
  for (int j = 0; j < width; j += 8) reinterpret_cast<uint4*>(own.P[lane])[j / 8] = rounded(&S[j]);
  __syncwarp();  // P is there for all lanes
  return rescale;
  // END 4.3
}

/// Multiplies each row of O (32, d) by its lane's factor.
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void rescale_O(Shared<d, Br, Bc, warps>& smem, Fragments<d>& fragments, float rescale) {
  // TODO(4.4) Nothing to do if no lane's factor differs from 1. Otherwise load row_index as an accumulator: its element
  // e says to which row element e of any accumulator belongs, and that row's lane has the factor (about 9 lines).
  // BEGIN 4.4
  if (!__any_sync(all_lanes, rescale != 1)) return;
  Accumulator row;
  wmma::load_matrix_sync(row, &smem.row_index[0][0], 16, wmma::mem_row_major);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int e = 0; e < row.num_elements; ++e) {
      const float factor = __shfl_sync(all_lanes, rescale, 16 * i + int(row.x[e]));
      for (int c = 0; c < d / 16; ++c) fragments.O[i][c].x[e] *= factor;
    }
  }
  // END 4.4
}

/// O += P V for this warp's rows and one step's keys: (32, step), (step, d) -> (32, d).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void accumulate_PV(Shared<d, Br, Bc, warps>& smem, Fragments<d>& fragments, int copy,
                                              int first_key) {
  // TODO(4.5) As in 3.7, but the accumulators are those of O, and nothing is stored. The next step's S goes where P is
  // (about 11 lines).
  // BEGIN 4.5
  constexpr int keys = step<d, Bc>;
#pragma unroll
  for (int j = 0; j < keys; j += 16) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> P[2];
    for (int i = 0; i < 2; ++i) wmma::load_matrix_sync(P[i], &smem.own[threadIdx.x / 32].P[16 * i][j], keys + pad_half);
#pragma unroll
    for (int c = 0; c < d / 16; ++c) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> V;
      wmma::load_matrix_sync(V, &smem.V[copy][first_key + j][16 * c], d + pad_half);
      for (int i = 0; i < 2; ++i) wmma::mma_sync(fragments.O[i][c], P[i], V, fragments.O[i][c]);
    }
  }
  __syncwarp();  // P has been read: the next S may overwrite it
  // END 4.5
}

/// O / l as fp16 and the LSE, m + log l, to device memory: the first `rows` of this warp's rows, (32, d) and (32).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void write_output(Shared<d, Br, Bc, warps>& smem, const Fragments<d>& fragments,
                                             const RowState& row, half* __restrict__ O_rows,
                                             float* __restrict__ lse_rows, int rows) {
  // TODO(4.6) The one division: each row by its l. As many columns at a time as own.O has: the fragments into own.O,
  // then eight neighbours a lane, times 1 / l from the lane of their row, one 16-byte store (about 19 lines).
  // BEGIN 4.6
  constexpr int columns = Workspace<d, Bc>::columns, chunks = columns / 8;
  const int lane = threadIdx.x % 32, chunk = lane % chunks;
  auto& own = smem.own[threadIdx.x / 32];
  if (lane < rows) lse_rows[lane] = (row.m + log2f(row.l)) * ln_2;
  const float inverse = row.l == 0 ? 0 : 1 / row.l;
#pragma unroll
  for (int c = 0; c < d; c += columns) {
#pragma unroll
    for (int i = 0; i < columns / 8; ++i)
      wmma::store_matrix_sync(&own.O[i % 2 * 16][i / 2 * 16], fragments.O[i % 2][c / 16 + i / 2], columns + pad_product,
                              wmma::mem_row_major);
    __syncwarp();  // all of it is there
    for (int i = lane / chunks; i < 32; i += 32 / chunks) {
      const float factor = __shfl_sync(all_lanes, inverse, i);
      alignas(16) float eight[8];
      for (int k = 0; k < 2; ++k)
        reinterpret_cast<float4*>(eight)[k] = reinterpret_cast<const float4*>(&own.O[i][8 * chunk])[k];
      if (i < rows) reinterpret_cast<uint4*>(O_rows)[i * (d / 8) + c / 8 + chunk] = rounded(eight, factor);
    }
    __syncwarp();  // the next columns may overwrite it
  }
  // END 4.6
}

/// One block per tile of queries and head. Warp w owns rows 32·w to 32·w + 31 and never talks to another warp.
template <int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(32 * warps, blocks<d, warps>)
    attention(const half* __restrict__ Q, const half* __restrict__ K, const half* __restrict__ V, half* __restrict__ O,
              float* __restrict__ lse, std::int64_t Nq, std::int64_t Nk, int query_tiles, float scale) {
  auto& smem = dynamic_shared<Shared<d, Br, Bc, warps>>();
  constexpr int threads = 32 * warps;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const std::int64_t head = blockIdx.x / query_tiles, query_tile = blockIdx.x % query_tiles;
  const std::int64_t first_query = query_tile * Br + 32 * warp, first_row = head * Nq + first_query;  // of this warp
  const int rows = min(std::int64_t(32), Nq - first_query);  // none if negative
  K += head * Nk * d, V += head * Nk * d;
  const int tiles = (Nk + Bc - 1) / Bc, last_keys = Nk - std::int64_t(tiles - 1) * Bc;  // the last tile may be short
  const auto load = [&](half(&tile)[copies<d>][Bc][d + pad_half], const half* source, int j) {
    load_tile<threads>(tile[j % copies<d>], source, j + 1 < tiles ? Bc : last_keys, thread);
  };

  load_tile<32>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  load(smem.K, K, 0);                                          // (Bc, d)
  if (copies<d> == 2) load(smem.V, V, 0);                      // (Bc, d)
  __pipeline_commit();
  for (int i = thread; i < 256; i += threads) smem.row_index[i / 16][i % 16] = float(i / 16);
  Fragments<d> fragments;
  for (auto& tiles_of_O : fragments.O)
    for (Accumulator& tile : tiles_of_O) wmma::fill_fragment(tile, 0.0f);
  __pipeline_wait_prior(0);
  __syncwarp();  // Q is there for all lanes
  for (int i = 0; i < d / 8 && Q_in_registers<d>; ++i)
    wmma::load_matrix_sync(fragments.Q[i % 2][i / 2], &smem.Q[warp][i % 2 * 16][i / 2 * 16], d + pad_half);

  RowState row;
  for (int j = 0; j < tiles; ++j) {
    __pipeline_wait_prior(0);
    __syncthreads();  // K_j is there, with two copies V_j too; nobody reads what the next loads overwrite
    if (copies<d> == 1) load(smem.V, V, j);
    K += Bc * d, V += Bc * d;  // to tile j + 1
    if (copies<d> == 2 && j + 1 < tiles) load(smem.K, K, j + 1), load(smem.V, V, j + 1);
    __pipeline_commit();
    const int keys = j + 1 < tiles ? Bc : last_keys;
    for (int first_key = 0; first_key < keys; first_key += step<d, Bc>) {
      multiply_QK(smem, fragments, j % copies<d>, first_key);                    // Sᵀ = K Qᵀ, (step, 32) per warp
      const float rescale = online_softmax(smem, row, keys - first_key, scale);  // P = exp2(S - m), (32, step)
      rescale_O(smem, fragments, rescale);                                       // O = O·rescale, (32, d)
      if (copies<d> == 1) {                                                      // then a step is the whole tile
        __pipeline_wait_prior(0);
        __syncthreads();  // V_j is there; nobody reads K_j any more
        if (j + 1 < tiles) load(smem.K, K, j + 1);
        __pipeline_commit();
      }
      accumulate_PV(smem, fragments, j % copies<d>, first_key);  // O += P V, (32, d)
    }
  }
  write_output(smem, fragments, row, O + first_row * d, lse + first_row, rows);  // O / l, m + log l
}

template <int d, int Br, int Bc, int warps>
void start(const ForwardCall<half>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t query_tiles = (Nq + Br - 1) / Br;
  const dim3 grid = workbook::cuda::grid_of(query_tiles * B * H, "B·H·⌈Nq/Br⌉");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps>, grid, dim3(32 * warps), sizeof(Shared<d, Br, Bc, warps>), call.Q,
                         call.K, call.V, call.O, call.lse, Nq, Nk, query_tiles, call.scale * log2_e);
}

}  // namespace

void q_split(const ForwardCall<half>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) { start<d, t.Br, t.Bc, t.warps>(call); });
}

std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles,
                                           [](auto d, auto t) { return sizeof(Shared<d, t.Br, t.Bc, t.warps>); });
}
int keys_per_step(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles, [](auto d, auto t) { return step<d, t.Bc>; });
}

}  // namespace ch04
