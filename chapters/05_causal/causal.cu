// Chapter 5, causal: the phases of the kernel, the kernel as their sequence, and the launch. A `diff` against chapter 4
// shows what the mask needs.
//
// Source: Dao 2023 (FlashAttention-2), section 3.1 ("Causal masking").
// Test it: ./workbook test 5
#include "causal.hpp"

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "common/cuda/kernel.hpp"

namespace ch05 {
namespace {

using namespace nvcuda;
using workbook::cuda::dynamic_shared, workbook::cuda::exp2_ftz;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;
constexpr unsigned all_lanes = 0xffffffff;

// As in chapter 3: rows of halves padded by 16 bytes for loads of fragments, rows of floats by 32 for their stores.
constexpr int pad_half = 16 / sizeof(half), pad_product = 32 / sizeof(float);

// m may stay behind a row's maximum by so much, and O is then not rescaled: P is at most 2^8, and fp16 is as exact
// there as it is at 1. 0 would keep m at the maximum.
constexpr float slack = 8;

// With d = 128 there is neither shared memory for a second K/V tile nor registers for Q.
template <int d>
constexpr int copies = d <= 64 ? 2 : 1;
template <int d>
constexpr bool Q_in_registers = d <= 64;
// A warp treats so many keys of a tile at once, since a lane keeps its scores in registers.
template <int d, int Bc>
constexpr int step = d <= 64 ? 32 : Bc;
// The blocks that shall fit a multiprocessor: the compiler divides the registers by them.
template <int d, int warps>
constexpr int blocks = (d == 128 || warps < 4 ? 8
                        : d == 64             ? 12
                                              : 16) /
                       warps;

// So many heads share the GPU at a time: enough blocks of every length to fill it, few enough for L2.
constexpr int heads_together = 8;

/// What a warp keeps in shared memory for itself, one after the other. Its S is transposed: a lane's row is a column,
/// so that the lanes read neighbours.
template <int d, int Bc>
union Workspace {
  static constexpr int keys = step<d, Bc>, columns = d < keys ? d : keys;
  float S[keys][32 + pad_product];
  half P[32][keys + pad_half];
  float O[32][columns + pad_product];
};

/// What a block keeps in shared memory. Every warp uses its own Q and workspace, and all of K and V.
template <int d, int Br, int Bc, int warps>
struct Shared {
  half Q[warps][32][d + pad_half], K[copies<d>][Bc][d + pad_half], V[copies<d>][Bc][d + pad_half];
  float row_index[16][16];  // element (i, j) is i
  Workspace<d, Bc> own[warps];
  SHARED_LAYOUT(Shared, (Q, d, d + pad_half), (K, d, d + pad_half), (V, d, d + pad_half), row_index, own);
};

/// What a warp keeps in registers: O (32, d), and Q (32, d), of which only the part in use if there is no room for all.
using QFragment = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major>;  // a column of Qᵀ is a row of Q
using Accumulator = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;
template <int d>
struct Fragments {
  Accumulator O[2][d / 16];
  QFragment Q[2][d / 16];
};

/// The sizes of a head, and whether query i sees only the keys j <= i + (Nk - Nq).
struct Sizes {
  std::int64_t Nq, Nk;
  bool causal;
};

/// What a lane keeps of its row.
struct RowState {
  float m = -INFINITY, l = 0;
};

/// Eight floats times factor, rounded to fp16: 16 bytes.
__device__ uint4 rounded(const float* x, float factor = 1) {
  uint4 eight;
  auto* pairs = reinterpret_cast<half2*>(&eight);
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2half2_rn(x[2 * i] * factor, x[2 * i + 1] * factor);
  return eight;
}

/// The largest of scale·S[j]: a maximum over the even j and one over the odd, neither of which waits for the other.
template <int width>
__device__ float largest_scaled(const float (&S)[width], float scale) {
  float extreme[2] = {S[0], S[1]};
  if (scale >= 0) {
    for (int j = 2; j < width; ++j) extreme[j % 2] = fmaxf(extreme[j % 2], S[j]);
  } else {
    for (int j = 2; j < width; ++j) extreme[j % 2] = fminf(extreme[j % 2], S[j]);
  }
  return fmaxf(extreme[0] * scale, extreme[1] * scale);
}

/// Starts to copy rows x d elements from device memory into a tile of (tile_rows, d) in shared memory; the rest of the
/// tile becomes zeros. The caller is number `thread` of `threads` that do it together.
template <int threads, int tile_rows, int columns>
__device__ __forceinline__ void load_tile(half (&tile)[tile_rows][columns], const half* __restrict__ source, int rows,
                                          int thread) {
  constexpr int d = columns - pad_half;
  const int first_row = thread / (d / 8), chunk = thread % (d / 8);  // a chunk is 16 bytes, eight halves
  const uint4* from = reinterpret_cast<const uint4*>(source) + first_row * (d / 8) + chunk;
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / (d / 8)) {
    const int row = first_row + i;
    __pipeline_memcpy_async(&reinterpret_cast<uint4*>(tile[row])[chunk], from + i * (d / 8), 16, row < rows ? 0 : 16);
  }
}

/// Sᵀ = K Qᵀ, not yet scaled, for this warp's rows and one step's keys, from first_key of the tile on:
/// (step, d), (32, d) -> (step, 32).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void multiply_QK(Shared<d, Br, Bc, warps>& smem, Fragments<d>& fragments, int copy,
                                            int first_key) {
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
}

/// How many tiles of Bc keys, from the first on, the queries first_query to first_query + Br - 1 see.
template <int Br, int Bc>
__device__ int key_tiles(std::int64_t first_query, const Sizes& sizes) {
  // TODO(5.1) The last of these queries sees most (about 3 lines).
  // BEGIN 5.1
  WORKBOOK_TODO(5.1);
  // END 5.1
}

/// -inf for the keys of this step that the row does not see, and the others times scale, if there are such keys in any
/// row of the warp; otherwise the scores stay as they are. Returns by what they are yet to be multiplied. query is the
/// row's number in its head, first_key the step's first key's, tile the K/V tile's.
template <int width>
__device__ __forceinline__ float mask_boundary(float (&S)[width], std::int64_t query, std::int64_t first_key, int tile,
                                               const Sizes& sizes, float scale) {
  // TODO(5.2) How many keys of this step does this row see? If all, in every lane, return scale. Otherwise say so by
  // workbook::cuda::note("masked tile", tile), scale and mask, and return 1 (about 6 lines).
  // BEGIN 5.2
  WORKBOOK_TODO(5.2);
  // END 5.2
}

/// S -> P = exp2(S·scale - m), with the m and l that the row has after this step; returns the factor that brings what
/// has been accumulated to the new m.
template <int width>
__device__ __forceinline__ float update_row(RowState& row, float (&S)[width], float scale) {
  // TODO(5.3) As in 4.3, for a row that may see no key in this step, or none at all. Then its scores are -inf, and m
  // may be: P is to be 0, m and l stay as they are, and nothing is NaN (about 10 lines).
  // BEGIN 5.3
  WORKBOOK_TODO(5.3);
  // END 5.3
}

/// S -> P for this lane's row and one step's keys: P (32, step), 0 for keys that the row does not see. Returns what O
/// is to be multiplied by. In units of log2: scale holds log2(e).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ float online_softmax(Shared<d, Br, Bc, warps>& smem, RowState& row, std::int64_t query,
                                                std::int64_t first_key, int tile, const Sizes& sizes, float scale) {
  constexpr int width = step<d, Bc>;
  const int lane = threadIdx.x % 32;
  auto& own = smem.own[threadIdx.x / 32];
  float S[width];
  for (int j = 0; j < width; ++j) S[j] = own.S[j][lane];
  scale = mask_boundary(S, query, first_key, tile, sizes, scale);
  const float rescale = update_row(row, S, scale);
  __syncwarp();  // all lanes have read S: P may overwrite it
  for (int j = 0; j < width; j += 8) reinterpret_cast<uint4*>(own.P[lane])[j / 8] = rounded(&S[j]);
  __syncwarp();  // P is there for all lanes
  return rescale;
}

/// Multiplies each row of O (32, d) by its lane's factor.
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void rescale_O(Shared<d, Br, Bc, warps>& smem, Fragments<d>& fragments, float rescale) {
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
}

/// O += P V for this warp's rows and one step's keys: (32, step), (step, d) -> (32, d).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void accumulate_PV(Shared<d, Br, Bc, warps>& smem, Fragments<d>& fragments, int copy,
                                              int first_key) {
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
}

/// O / l as fp16 and the LSE, m + log l, to device memory: the first `rows` of this warp's rows, (32, d) and (32).
template <int d, int Br, int Bc, int warps>
__device__ __forceinline__ void write_output(Shared<d, Br, Bc, warps>& smem, const Fragments<d>& fragments,
                                             const RowState& row, half* __restrict__ O_rows,
                                             float* __restrict__ lse_rows, int rows) {
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
}

/// What block number `block` does: a tile of queries of a head.
struct Work {
  int head, query_tile;
};
__device__ Work work_of(int block, int heads, int query_tiles) {
  // TODO(5.4) Blocks start in the order of their numbers. Long ones first, and heads_together heads at a time, whose
  // K and V then stay in L2 (about 3 lines).
  // BEGIN 5.4
  WORKBOOK_TODO(5.4);
  // END 5.4
}

/// One block per tile of queries and head. Warp w owns rows 32·w to 32·w + 31 and never talks to another warp.
template <int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(32 * warps, blocks<d, warps>)
    attention(const half* __restrict__ Q, const half* __restrict__ K, const half* __restrict__ V, half* __restrict__ O,
              float* __restrict__ lse, Sizes sizes, int heads, int query_tiles, float scale) {
  auto& smem = dynamic_shared<Shared<d, Br, Bc, warps>>();
  constexpr int threads = 32 * warps;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const Work work = work_of(blockIdx.x, heads, query_tiles);
  const std::int64_t head = work.head, first_query = std::int64_t(work.query_tile) * Br + 32 * warp;  // of this warp
  const std::int64_t first_row = head * sizes.Nq + first_query;
  const int rows = min(std::int64_t(32), sizes.Nq - first_query);  // none if negative
  K += head * sizes.Nk * d, V += head * sizes.Nk * d;
  const int tiles = key_tiles<Br, Bc>(std::int64_t(work.query_tile) * Br, sizes);
  const auto load = [&](half(&tile)[copies<d>][Bc][d + pad_half], const half* source, int j) {
    load_tile<threads>(tile[j % copies<d>], source, min(std::int64_t(Bc), sizes.Nk - std::int64_t(j) * Bc), thread);
  };

  load_tile<32>(smem.Q[warp], Q + first_row * d, rows, lane);  // (32, d)
  if (tiles > 0) load(smem.K, K, 0);                           // (Bc, d)
  if (tiles > 0 && copies<d> == 2) load(smem.V, V, 0);         // (Bc, d)
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
    for (int first_key = 0; first_key < Bc; first_key += step<d, Bc>) {
      multiply_QK(smem, fragments, j % copies<d>, first_key);  // Sᵀ = K Qᵀ, (step, 32) per warp
      const float rescale = online_softmax(smem, row, first_query + lane, std::int64_t(j) * Bc + first_key, j, sizes,
                                           scale);  // P = exp2(S - m), (32, step)
      rescale_O(smem, fragments, rescale);          // O = O·rescale, (32, d)
      if (copies<d> == 1) {                         // then a step is the whole tile
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
void start(const DeviceCall& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const std::int64_t query_tiles = (Nq + Br - 1) / Br, blocks = query_tiles * B * H;
  if (blocks > std::numeric_limits<int>::max())
    throw std::invalid_argument("B·H·⌈Nq/Br⌉ = " + std::to_string(blocks) + ": a grid has at most 2147483647 blocks");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps>, dim3(blocks), dim3(32 * warps), sizeof(Shared<d, Br, Bc, warps>),
                         call.Q, call.K, call.V, call.O, call.lse, Sizes{Nq, Nk, call.causal}, int(B * H), query_tiles,
                         call.scale * log2_e);
}

template <int d>
void start(const DeviceCall& call, Tiles tiles) {
  const auto [Br, Bc, warps] = tiles;
  if (Br == 128 && Bc == 64 && warps == 4) return start<d, 128, 64, 4>(call);
  if (Br == 128 && Bc == 32 && warps == 4) return start<d, 128, 32, 4>(call);
  if (Br == 64 && Bc == 64 && warps == 2) return start<d, 64, 64, 2>(call);
  if (Br == 32 && Bc == 32 && warps == 1) return start<d, 32, 32, 1>(call);
  throw std::invalid_argument("Br, Bc, warps = " + std::to_string(Br) + ", " + std::to_string(Bc) + ", " +
                              std::to_string(warps) + " is not built; causal.hpp lists what is");
}

}  // namespace

void causal(const DeviceCall& call, Tiles tiles) {
  const auto& [B, H, Hkv, Nq, Nk, d] = call.shape;
  if (d == 32) return start<32>(call, tiles);
  if (d == 64) return start<64>(call, tiles);
  if (d == 128) return start<128>(call, tiles);
  throw std::invalid_argument("d = " + std::to_string(d) + " is not supported; allowed are 32, 64 and 128");
}

}  // namespace ch05
