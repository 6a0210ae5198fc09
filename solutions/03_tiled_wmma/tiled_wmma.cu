// Chapter 3, tiled WMMA: the phases of the kernel, the kernel as their sequence, and the launch.
//
// Source: Dao et al. 2022, section 3.1, Algorithm 1; Dao 2023, sections 3.2 and 3.3 (what this partition costs).
// Test it: ./workbook test 3
#include "tiled_wmma.hpp"

#include <cstdint>

#include "common/cuda/dispatch.hpp"

namespace ch03 {
namespace {

using namespace nvcuda;
using workbook::cuda::dynamic_shared, workbook::cuda::exp2_ftz;

constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

// Shared memory has 32 banks of 4 bytes. A fragment of halves is loaded 16 bytes from each of eight consecutive rows at
// a time: all 32 banks once, if the rows start in eight disjoint groups of four banks. Rows of d = 64 halves, 128
// bytes, would all start in bank 0; padded by 16 bytes, each starts four banks after the last. So with lanes that read
// 16 bytes from consecutive rows of floats.
constexpr int pad_half = 16 / sizeof(half), pad_float = 16 / sizeof(float);
// A fragment of floats is stored eight floats of each of four rows at a time: these start in four disjoint groups of
// eight banks if padded by 32 bytes.
constexpr int pad_product = 32 / sizeof(float);

/// What a block keeps in shared memory. A part is what one warp has computed from its keys of the tile.
template <int d, int Br, int Bc, int warps>
struct Shared {
  half Q[Br][d + pad_half], K[Bc][d + pad_half], V[Bc][d + pad_half];
  float S[Br][Bc + pad_float];
  half P[Br][Bc + pad_half];
  float O_part[warps][Br][d + pad_product], m_part[warps][Br], l_part[warps][Br];
  float rescale[Br], l[Br];
  SHARED_LAYOUT(Shared, (Q, d), (K, d), (V, d), (S, Bc), (P, Bc), (O_part, d), m_part, l_part, rescale, l);
};

/// The running m and l of rows lane, lane + 32, … of the tile. Every warp keeps all rows: each computes the same.
template <int Br>
struct RowState {
  float m[Br / 32], l[Br / 32];
};

/// What one thread keeps of O (Br, d): four neighbours in every rows_apart-th row, as fp32 in registers.
template <int d, int Br, int warps>
struct OutputShare {
  static constexpr int rows_apart = 32 * warps / (d / 4), count = Br / rows_apart;
  static __device__ int row(int i) { return threadIdx.x / (d / 4) + i * rows_apart; }
  static __device__ int column() { return threadIdx.x % (d / 4) * 4; }
  float4 values[count];
};

/// a·x + y for four neighbours.
__device__ float4 multiply_add(float a, float4 x, float4 y) {
  return {a * x.x + y.x, a * x.y + y.y, a * x.z + y.z, a * x.w + y.w};
}

/// Eight floats rounded to fp16: 16 bytes.
__device__ uint4 rounded(const float* x) {
  uint4 eight;
  auto* pairs = reinterpret_cast<half2*>(&eight);
  for (int i = 0; i < 4; ++i) pairs[i] = __floats2half2_rn(x[2 * i], x[2 * i + 1]);
  return eight;
}

/// rows x d elements from device memory into a tile of (tile_rows, d) in shared memory; the rest of the tile is zeros.
template <int threads, int tile_rows, int columns>
__device__ __forceinline__ void load_tile(half (&tile)[tile_rows][columns], const half* __restrict__ source, int rows) {
  constexpr int d = columns - pad_half;
  // TODO(3.4) Copy 16 bytes a thread and step, neighbouring threads neighbouring bytes; rows that do not exist become
  // zeros, for garbage in V would survive a weight of zero: 0 · NaN is NaN (about 7 lines).
  // BEGIN 3.4
  const int first_row = threadIdx.x / (d / 8), chunk = threadIdx.x % (d / 8);  // a chunk is 16 bytes, eight halves
#pragma unroll
  for (int i = 0; i < tile_rows; i += threads / (d / 8)) {
    const int row = first_row + i;
    uint4 eight = {0, 0, 0, 0};
    if (row < rows) eight = reinterpret_cast<const uint4*>(source)[row * (d / 8) + chunk];
    reinterpret_cast<uint4*>(tile[row])[chunk] = eight;
  }
  // END 3.4
}

/// S = Q Kᵀ, not yet scaled, for this warp's keys of the tile: (Br, d), (Bc / warps, d) -> (Br, Bc / warps).
template <int d, int Br, int Bc, int warps>
__device__ void multiply_QK(Shared<d, Br, Bc, warps>& smem) {
  // TODO(3.5) For every 16 keys of this warp: Br/16 accumulators, summed over d in steps of 16, stored to smem.S. A row
  // of K is a column of Kᵀ (about 18 lines).
  // BEGIN 3.5
  const int first_key = threadIdx.x / 32 * (Bc / warps);
#pragma unroll
  for (int j = first_key; j < first_key + Bc / warps; j += 16) {
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> S[Br / 16];
    for (auto& tile : S) wmma::fill_fragment(tile, 0.0f);
#pragma unroll
    for (int c = 0; c < d; c += 16) {
      wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> K;
      wmma::load_matrix_sync(K, &smem.K[j][c], d + pad_half);
#pragma unroll
      for (int i = 0; i < Br / 16; ++i) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> Q;
        wmma::load_matrix_sync(Q, &smem.Q[16 * i][c], d + pad_half);
        wmma::mma_sync(S[i], Q, K, S[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < Br / 16; ++i)
      wmma::store_matrix_sync(&smem.S[16 * i][j], S[i], Bc + pad_float, wmma::mem_row_major);
  }
  __syncwarp();  // each lane of this warp reads rows that others have stored
  // END 3.5
}

/// S -> P for this warp's keys, relative to the maximum that the rows have reached with this tile: each row's maximum
/// over all warps, m; P (Br, Bc / warps) = exp2(S·scale - m), 0 for keys that do not exist; this warp's sums of P; and
/// the factor that brings what has been accumulated to the new maximum. In units of log2: scale holds log2(e).
template <int d, int Br, int Bc, int warps>
__device__ void online_softmax(Shared<d, Br, Bc, warps>& smem, RowState<Br>& state, int keys, float scale) {
  // TODO(3.6) Each lane takes rows lane, lane + 32, …: their maxima over this warp's keys into smem.m_part[warp]. When
  // all warps have done so: the new m, P, this warp's sums into smem.l_part[warp], and smem.rescale from one warp
  // (about 34 lines).
  // BEGIN 3.6
  constexpr int width = Bc / warps;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_key = warp * width;
  float S[Br / 32][width];
  for (int i = 0; i < Br / 32; ++i) {
    const int row = lane + 32 * i;
    for (int j = 0; j < width; j += 4) {
      const float4 four = *reinterpret_cast<const float4*>(&smem.S[row][first_key + j]);
      S[i][j] = four.x * scale, S[i][j + 1] = four.y * scale;
      S[i][j + 2] = four.z * scale, S[i][j + 3] = four.w * scale;
    }
    if (keys < Bc) {  // a row of zeros in K gives a score of 0, which would count like any other
      for (int j = 0; j < width; ++j) S[i][j] = first_key + j < keys ? S[i][j] : -INFINITY;
    }
    float m_own = -INFINITY;
    for (int j = 0; j < width; ++j) m_own = fmaxf(m_own, S[i][j]);
    smem.m_part[warp][row] = m_own;
  }
  __syncthreads();  // the maxima of all warps are there

  for (int i = 0; i < Br / 32; ++i) {
    const int row = lane + 32 * i;
    float m_new = state.m[i];
    for (int w = 0; w < warps; ++w) m_new = fmaxf(m_new, smem.m_part[w][row]);
    const float m_safe = m_new == -INFINITY ? 0 : m_new;
    if (warp == 0) smem.rescale[row] = exp2_ftz(state.m[i] - m_safe);
    state.m[i] = m_new;

    float l_own = 0;
    for (int j = 0; j < width; ++j) {
      S[i][j] = exp2_ftz(S[i][j] - m_safe);
      l_own += S[i][j];
    }
    for (int j = 0; j < width; j += 8) *reinterpret_cast<uint4*>(&smem.P[row][first_key + j]) = rounded(&S[i][j]);
    smem.l_part[warp][row] = l_own;
  }
  __syncwarp();  // this warp multiplies rows of P that its other lanes have stored
  // END 3.6
}

/// O = rescale·O + P V and l = rescale·l + the sums of P. Each warp multiplies its columns of P with its rows of V,
/// (Br, Bc / warps), (Bc / warps, d) -> (Br, d); the sum over the warps goes through shared memory.
template <int d, int Br, int Bc, int warps>
__device__ void accumulate_PV(Shared<d, Br, Bc, warps>& smem, OutputShare<d, Br, warps>& O, RowState<Br>& state) {
  // TODO(3.7) This warp's product into smem.O_part[warp]. When all are there, each thread rescales its share of O and
  // adds what every warp has for it, and each lane does the same for the l of its rows (about 30 lines).
  // BEGIN 3.7
  constexpr int width = Bc / warps;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_key = warp * width;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> P[Br / 16][width / 16];
#pragma unroll
  for (int i = 0; i < Br / 16; ++i) {
    for (int j = 0; j < width / 16; ++j)
      wmma::load_matrix_sync(P[i][j], &smem.P[16 * i][first_key + 16 * j], Bc + pad_half);
  }
#pragma unroll
  for (int c = 0; c < d; c += 16) {
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> V[width / 16];
    for (int j = 0; j < width / 16; ++j) wmma::load_matrix_sync(V[j], &smem.V[first_key + 16 * j][c], d + pad_half);
#pragma unroll
    for (int i = 0; i < Br / 16; ++i) {
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> PV;
      wmma::fill_fragment(PV, 0.0f);
      for (int j = 0; j < width / 16; ++j) wmma::mma_sync(PV, P[i][j], V[j], PV);
      wmma::store_matrix_sync(&smem.O_part[warp][16 * i][c], PV, d + pad_product, wmma::mem_row_major);
    }
  }
  __syncthreads();  // products, sums and factors of all warps are there; K and V may be overwritten

#pragma unroll
  for (int i = 0; i < O.count; ++i) {
    const int row = O.row(i);
    float4 PV = {0, 0, 0, 0};
    for (int w = 0; w < warps; ++w)
      PV = multiply_add(1, *reinterpret_cast<const float4*>(&smem.O_part[w][row][O.column()]), PV);
    O.values[i] = multiply_add(smem.rescale[row], O.values[i], PV);
  }
  for (int i = 0; i < Br / 32; ++i) {
    state.l[i] *= smem.rescale[lane + 32 * i];
    for (int w = 0; w < warps; ++w) state.l[i] += smem.l_part[w][lane + 32 * i];
  }
  // END 3.7
}

/// The tile's O / l as fp16 and its LSE, m + log l, to device memory: the first `rows` rows of (Br, d) and of (Br).
template <int d, int Br, int Bc, int warps>
__device__ void write_output(Shared<d, Br, Bc, warps>& smem, const OutputShare<d, Br, warps>& O,
                             const RowState<Br>& state, half* __restrict__ O_tile, float* __restrict__ lse_tile,
                             int rows) {
  // TODO(3.8) Put O into smem.O_part[0] and l into smem.l, so that a thread can take eight neighbours of O: divide by
  // l, round, one 16-byte store. The LSE is a natural logarithm (about 20 lines).
  // BEGIN 3.8
#pragma unroll
  for (int i = 0; i < O.count; ++i) *reinterpret_cast<float4*>(&smem.O_part[0][O.row(i)][O.column()]) = O.values[i];
  if (threadIdx.x < 32) {
    for (int i = 0; i < Br / 32; ++i) {
      const int row = threadIdx.x + 32 * i;
      smem.l[row] = state.l[i];
      if (row < rows) lse_tile[row] = (state.m[i] + log2f(state.l[i])) * ln_2;
    }
  }
  __syncthreads();  // O and l of all rows are there

  const int first_row = threadIdx.x / (d / 8), chunk = threadIdx.x % (d / 8);
#pragma unroll
  for (int i = 0; i < Br; i += 32 * warps / (d / 8)) {
    const int row = first_row + i;
    if (row >= rows) break;
    const float l = smem.l[row], factor = l == 0 ? 0 : 1 / l;
    const auto* four = reinterpret_cast<const float4*>(&smem.O_part[0][row][8 * chunk]);
    const float4 a = four[0], b = four[1];
    const float eight[] = {a.x * factor, a.y * factor, a.z * factor, a.w * factor,
                           b.x * factor, b.y * factor, b.z * factor, b.w * factor};
    reinterpret_cast<uint4*>(O_tile)[row * (d / 8) + chunk] = rounded(eight);
  }
  // END 3.8
}

/// One block per head. It walks the tiles of queries, and for each of them all tiles of keys.
template <int d, int Br, int Bc, int warps>
__global__ void __launch_bounds__(32 * warps, 1)
    attention(const half* __restrict__ Q, const half* __restrict__ K, const half* __restrict__ V, half* __restrict__ O,
              float* __restrict__ lse, std::int64_t Nq, std::int64_t Nk, float scale) {
  auto& smem = dynamic_shared<Shared<d, Br, Bc, warps>>();
  constexpr int threads = 32 * warps;
  const std::int64_t head = blockIdx.x;
  Q += head * Nq * d, K += head * Nk * d, V += head * Nk * d, O += head * Nq * d, lse += head * Nq;

  for (std::int64_t first_query = 0; first_query < Nq; first_query += Br) {
    const int queries = min(std::int64_t(Br), Nq - first_query);  // the last tile may be short
    load_tile<threads>(smem.Q, Q + first_query * d, queries);     // (Br, d)
    OutputShare<d, Br, warps> O_share;
    for (float4& four : O_share.values) four = {0, 0, 0, 0};
    RowState<Br> state;
    for (int i = 0; i < Br / 32; ++i) state.m[i] = -INFINITY, state.l[i] = 0;

    for (std::int64_t first_key = 0; first_key < Nk; first_key += Bc) {
      const int keys = min(std::int64_t(Bc), Nk - first_key);
      load_tile<threads>(smem.K, K + first_key * d, keys);  // (Bc, d)
      load_tile<threads>(smem.V, V + first_key * d, keys);  // (Bc, d)
      __syncthreads();                                      // Q, K and V are there
      multiply_QK(smem);                                    // S = Q Kᵀ, (Br, Bc / warps) per warp
      online_softmax(smem, state, keys, scale);             // P = exp2(S - m), m over all warps; one barrier
      accumulate_PV(smem, O_share, state);                  // O = O·rescale + P V over all warps; one barrier
    }
    write_output(smem, O_share, state, O + first_query * d, lse + first_query, queries);  // O / l, m + log l
  }
}

template <int d, int Br, int Bc, int warps>
void start(const ForwardCall<half>& call) {
  const auto& [B, H, Hkv, Nq, Nk, d_] = call.shape;
  const dim3 grid = workbook::cuda::grid_of(B * H, "B·H");
  // The GPU has an instruction for exp2, and exp(x) = exp2(x · log2(e)).
  workbook::cuda::launch(attention<d, Br, Bc, warps>, grid, dim3(32 * warps), sizeof(Shared<d, Br, Bc, warps>), call.Q,
                         call.K, call.V, call.O, call.lse, Nq, Nk, call.scale * log2_e);
}

// The others would take more than the 227 KB that a block may have.
template <int d, int Br, int Bc, int warps>
constexpr bool is_built = sizeof(Shared<d, Br, Bc, warps>) <= 227 * 1024;

}  // namespace

void tiled_wmma(const ForwardCall<half>& call, const Tiles& tiles) {
  workbook::cuda::with_sizes<built>(call.shape.d, tiles, [&](auto d, auto t) {
    if constexpr (is_built<d, t.Br, t.Bc, t.warps>) start<d, t.Br, t.Bc, t.warps>(call);
  });
}

std::size_t shared_bytes(int d, const Tiles& tiles) {
  return workbook::cuda::with_sizes<built>(d, tiles, [](auto d, auto t) {
    return is_built<d, t.Br, t.Bc, t.warps> ? sizeof(Shared<d, t.Br, t.Bc, t.warps>) : 0;
  });
}

}  // namespace ch03
